package slurm

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]Release{
		"22.05.8":              {22, 5},
		"slurm-wlm 24.11.5":    {24, 11},
		"slurm 26.05.3\n":      {26, 5},
		"24.11.0-0rc1":         {24, 11},
		"25.05":                {25, 5},
		"slurm-wlm 23.11.10.1": {23, 11},
	} {
		got, err := ParseRelease(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "24", "slurm", "24.x", "-1.05", "999.05", "22.99", "x.y.z"} {
		if got, err := ParseRelease(text); err == nil {
			t.Errorf("version %q: no error, release %v", text, got)
		}
	}
	if got := (Release{22, 5}).String(); got != "22.05" {
		t.Error(got)
	}
}

func TestReleasesInOrder(t *testing.T) {
	order := []Release{OldestRelease, {23, 2}, {23, 11}, {24, 5}, {24, 11}, {25, 5}, {25, 11}, NewestRelease}
	for i, r := range order {
		for k, o := range order {
			if got := r.Compare(o); got < 0 != (i < k) || got > 0 != (i > k) {
				t.Errorf("%v compared with %v: %d", r, o, got)
			}
		}
	}
}

// TestReleaseDifferences checks that each difference applies to the release that docs/slurm-releases.md mentions and to
// all later releases.
func TestReleaseDifferences(t *testing.T) {
	order := []Release{{22, 5}, {23, 2}, {23, 11}, {24, 5}, {24, 11}, {25, 5}, {25, 11}, {26, 5}}
	for name, d := range map[string]struct {
		has  func(Release) bool
		from Release
	}{
		"KeepsCase":        {Release.KeepsCase, Release{23, 2}},
		"ReadsExtraAsJSON": {Release.ReadsExtraAsJSON, Release{23, 11}},
		"RestartsSlurmd":   {Release.RestartsSlurmd, Release{23, 11}},
		"WaitsForPrologs":  {Release.WaitsForPrologs, Release{24, 11}},
	} {
		for _, r := range order {
			if got := d.has(r); got != (r.Compare(d.from) >= 0) {
				t.Errorf("%s of %v: %v", name, r, got)
			}
		}
	}
}

// TestReleaseMethodsAreDocumented checks that docs/slurm-releases.md mentions each method of Release.
func TestReleaseMethodsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/slurm-releases.md")
	if err != nil {
		t.Fatal(err)
	}
	all := reflect.TypeFor[Release]()
	for i := range all.NumMethod() {
		m := all.Method(i)
		if m.Type.NumIn() != 1 || m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Bool {
			continue // String, Compare
		}
		if !strings.Contains(string(page), "(`"+m.Name+"`)") {
			t.Errorf("docs/slurm-releases.md does not contain (`%s`)", m.Name)
		}
	}
}
