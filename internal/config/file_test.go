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
			[]string{"1 'node' expected type 'string', got type 'list'", "2 poll_interval: 15ns", "3 margin: -1"}},
		{"profiles:\n- 1g.5gb\n- 1g.7gb\n",
			[]string{`3 warning profiles: no GPU model that Caelum knows has the profile "1g.7gb"`}},
		{"profiles: {a100: 1g.5gb}\n", []string{`1 unknown key "profiles.a100"`}},
		{"profiles: [1g.5gb]\ndefault_profile: 2g.10gb\n",
			[]string{`2 default_profile: "2g.10gb" is not listed in profiles`}},
		{"node: n1\nNODE: n2\n", []string{"2 node: line 1 already sets this key"}},
		{"policy: best\nwhole_gpus: some\nsizing: tight\n", []string{"1 policy: ", "2 whole_gpus: ", "3 sizing"}},
		{"node: n1\nprofiles: [1g.5gb\n", []string{"not valid YAML: "}},
		{"hello\n", []string{"0 "}},
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
			_, err = own.Whole()
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
