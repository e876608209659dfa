package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCheckFile tests the lines and messages of the faults. An entry of want is a line number and a part of the
// message.
func TestCheckFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "caelum.yaml")
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"# no key\n", nil},
		{"---\nnode: n1\nPolicy: reach\nprofiles:\n  - 1g.5gb\n  - full\nwhole_gpus: 2\n", nil},
		{"node: n1\n\nnodes: n1\nprofile: 1g.5gb\n", []string{`3 unknown key "nodes"`, `4 unknown key "profile"`}},
		{"node: [n1]\npoll_interval: 15\nmargin: -1\n",
			[]string{"1 node: a list is not a string", "2 poll_interval: 15 is not a time with a unit, from 100ms",
				"3 margin: -1"}},
		{"poll_interval: soon\nsample_interval: 0\nmargin: much\nlearn: maybe\nwake_port: 1x\nshare_users: [1]\n",
			[]string{`1 poll_interval: "soon" is not a time with a unit`,
				`3 margin: "much" is not a number from 0 to 10`,
				`4 learn: "maybe" is not true or false`, `5 wake_port: "1x" is not a UDP port or 0`,
				"6 share_users: a list is not a whole number from 1 to 1000"}},
		{"poll_interval: 1.5\n", []string{"1 poll_interval: 1.5 is not a time with a unit"}},
		{"node:\nprofiles:\nlearn:\n", nil},
		{"- node: n1\n", []string{"1 not a mapping; each line must have the form `key: value`"}},
		{"profiles:\n- 1g.5gb\n- 1g.7gb\n",
			[]string{`3 warning profiles: no GPU model that Caelum knows has the profile "1g.7gb"`}},
		{"profiles: {a100: 1g.5gb}\n", []string{`1 unknown key "profiles.a100"`}},
		{"profiles: [1g.5gb]\ndefault_profile: 2g.10gb\n",
			[]string{`2 default_profile: "2g.10gb" is not listed in profiles`}},
		{"profiles: [1g.5gb, 1f.11gb]\nfractions: {l40s: 4, a40: 12}\ndefault_profile: 1f.11gb\n", nil},
		{"profiles: [1g.5gb]\nfractions:\n  T4: 2\ndefault_profile: 1f.7gb\n", nil},
		{"fractions: {}\n", nil},
		{"fractions:\n", nil},
		{"fractions: {v100: 4}\nfraction_limits: softmig\n", nil},
		{"fraction_limits: driver\nsample_interval: 0\n", nil},
		{"node: n1\nfraction_limits: hami\n", []string{`2 fraction_limits: "hami" is not driver or softmig`}},
		{"fractions: {l40s: 4}\nsample_interval: 0\n", []string{"1 fractions: only samples find programs"}},
		{"fractions: {l40s: many}\n", []string{`1 fractions: {"l40s":"many"} is not numbers of units, 2 to 12, by`}},
		{"fractions: 4\n", []string{"1 fractions: 4 is not numbers of units, 2 to 12, by GPU type"}},
		{"fractions: [l40s]\n", []string{"1 fractions: a list is not numbers"}},
		{"node: n1\nfractions: {l40s: 4, a40: 1}\n", []string{"2 fractions: a40 has 1 units, but the number must be"}},
		{"fractions: {l40s: 13}\n", []string{"1 fractions: l40s has 13 units"}},
		{"fractions: {a40: {b: 2}}\n", []string{`1 unknown key "fractions.a40.b"`}},
		{"fractions: {a40.b: 2}\n", []string{`1 unknown key "fractions.a40.b"`}},
		{"fractions: {NVIDIA L40S: 2}\n", []string{`1 fractions: "nvidia l40s" is not a GPU type of gres.conf`}},
		{"profiles: [1g.5gb, 1f.11gb]\ndefault_profile: 2f.22gb\n", []string{`2 default_profile: "2f.22gb" is not`}},
		{"node: n1\nNODE: n2\n", []string{"2 node: line 1 already sets this key"}},
		{"policy: best\nwhole_gpus: some\nsizing: tight\n", []string{"1 policy: ", "2 whole_gpus: ", "3 sizing"}},
		{"node: n1\nprofiles: [1g.5gb\n", []string{"not valid YAML: "}},
		{"hello\n", []string{"1 not a mapping"}},
		{"node: \x00\n", []string{"0 "}},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		faults, err := CheckFile(path)
		var got []string
		refused := false
		for _, f := range faults {
			text := fmt.Sprintf("%d %s", f.Line, f.Text)
			if f.Warning {
				text = fmt.Sprintf("%d warning %s", f.Line, f.Text)
			}
			got, refused = append(got, text), refused || !f.Warning
		}
		if err != nil || !slices.EqualFunc(got, c.want, strings.Contains) {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
		own, err := load(path, 1)
		if err == nil {
			_, err = own.FullGPUs()
		}
		// viper ignores the case of keys, so Load accepts a key that is repeated in another case.
		if (err != nil) != refused && !strings.Contains(c.text, "NODE") {
			t.Errorf("%q: CheckFile refuses the file: %v; Load returned %v", c.text, refused, err)
		}
	}
	if _, err := CheckFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("CheckFile accepts a missing file")
	}
}
