package decisions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCheck tests the lines and messages of all faults of a table. Check must return faults if and only if Parse
// returns an error.
func TestCheck(t *testing.T) {
	const head, valid = "caelum-decisions 1 7\n", "profile 1g.5gb 4864\ndefault 1g.5gb\n"
	for _, c := range []struct {
		text string
		want []string
	}{
		{head + valid, nil},
		{head + valid + "partition gpu 1g.5gb grow=oom # comment\n\n", nil},
		{"", []string{"0 the first line is not"}},
		{"caelum-decisions 1 7\r\n", []string{"0 the lines must end with LF"}},
		{head + valid + "partition gpu", []string{"0 the last line is not complete"}},
		{head + "profile 1g.5gb\n", []string{"0 the default line is missing"}},
		{head + valid + "partition gpu grow=on\n partition gpu\nprofil#2g.10gb\ndefault 1g.5gb\n", []string{
			"4 the line must have the form partition NAME [PROFILE] [grow=off|oom|forecast]",
			"5 the line begins with a blank",
			`6 no line may begin with "profil"; a line must begin with alias, args, bypass, default, grow`,
			"7 the line must have the form default PROFILE, once",
		}},
		{head + valid + "whole 7g.40gb\nmodel a100 7g.40gb\nuser 1:0 1g.5gb\n",
			[]string{`4 the profile "7g.40gb" has no profile line`,
				"6 the line must have the form user USER_ID:FINGERPRINT"}},
		{head + valid + "alias a100_5g 1g.5gb\nalias a100_5g 1g.5gb\nalias b 2g.10gb\nalias c\n", []string{
			"5 the line must have the form alias TYPE PROFILE, once for each type",
			`6 the profile "2g.10gb" has no profile line`,
			"7 the line must have the form alias TYPE PROFILE",
		}},
		{head + valid + "shard 2 1g.5gb\nshard a:2 2g.10gb\nshard a 1g.5gb\n", []string{
			`5 the profile "2g.10gb" has no profile line`,
			"6 the line must have the form shard [TYPE:]COUNT PROFILE, once for each type and count",
		}},
		{head + valid + "args 7:0123456789abcdef 1 2=1g.5gb 4=2g.10gb *=1g.5gb\nargs 7:0 1 *=1g.5gb\n", []string{
			`4 the profile "2g.10gb" has no profile line`,
			"5 the line must have the form args USER_ID:KEY POSITION NUMBER=PROFILE... *=PROFILE, 1 to 16 numbers",
		}},
		{head + valid + "bypass whole\npartition gpu\n", nil},
		{head + valid + "bypass off\npartition off\n", nil},
		{head + valid + "bypass gpu\npartition gpu\nbypass off\nbypass a,gpu\n", []string{
			`4 the partition "gpu" also has a partition line`,
			"6 the line must have the form bypass PARTITION|off, once",
			"7 the line must have the form bypass PARTITION|off, once",
		}},
		{head + valid + strings.Repeat("\n", MaxLines), []string{"0 the table has more than 20000 lines"}},
	} {
		var got []string
		for _, f := range Check(c.text) {
			got = append(got, fmt.Sprint(f.Line, " ", f.Text))
		}
		if !slices.EqualFunc(got, c.want, strings.Contains) {
			t.Errorf("%.60q: %q, want %q", c.text, got, c.want)
		}
		if _, err := Parse(c.text); (err != nil) != (len(got) > 0) {
			t.Errorf("%.60q: Check returned %q, and Parse returned %v", c.text, got, err)
		}
	}
}
