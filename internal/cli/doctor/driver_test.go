package doctor

import (
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
)

// TestModifiedDeviceFiles tests that ModifyDeviceFiles=1 is an error without a devices cgroup and a warning with one.
func TestModifiedDeviceFiles(t *testing.T) {
	for constrain, want := range map[string]Severity{"yes": Warning, "no": Error} {
		f := healthy()
		f.Driver.Modifies, f.Config.Values["ConstrainDevices"] = true, constrain
		found := Examine(f)
		if !slices.ContainsFunc(found, func(g Finding) bool {
			return g.Check == "driver" && g.Severity == want && strings.Contains(g.Text, "ModifyDeviceFiles is 1") &&
				g.Next != ""
		}) {
			t.Errorf("ConstrainDevices=%s: %+v", constrain, found)
		}
	}
	f := healthy()
	f.Driver.Modifies = true
	f.Missing[Slurmctld] = fault("no answer", "start it")
	found := Examine(f)
	i := slices.IndexFunc(found, func(g Finding) bool { return g.Check == "driver" })
	if found[i].Severity != Warning {
		t.Errorf("without slurmctld: %+v", found[i])
	}
}

// TestModifiedFullDevices tests the finding about the device files of full GPUs.
func TestModifiedFullDevices(t *testing.T) {
	about := func(f *Facts) (found []Severity) {
		for _, g := range Examine(f) {
			if g.Check == "driver" && strings.Contains(g.Text, "full GPUs") {
				found = append(found, g.Severity)
			}
		}
		return found
	}
	for constrain, want := range map[string]Severity{"yes": Warning, "no": Error} {
		f := healthy()
		f.Driver.Modifies, f.Config.Values["ConstrainDevices"] = true, constrain
		if got := about(f); got != nil {
			t.Errorf("without full GPUs: %v", got)
		}
		f.Agent.Profiles = append(slices.Clone(f.Agent.Profiles), mig.Full)
		if got := about(f); !slices.Equal(got, []Severity{want}) {
			t.Errorf("ConstrainDevices=%s: %v, want %v", constrain, got, want)
		}
		f.Driver.Modifies = false
		if got := about(f); got != nil {
			t.Errorf("with ModifyDeviceFiles=0: %v", got)
		}
	}
}
