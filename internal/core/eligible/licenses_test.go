package eligible

import (
	"testing"

	"caelum/internal/slurm"
)

func TestLacksLicense(t *testing.T) {
	q := slurm.Queue{Licenses: map[string]int{"ansys": 3, "matlab@flex": 0}}
	for asks, want := range map[string]string{
		"": "", "ansys": "", "ansys:3": "", "ansys:4": "ansys",
		"ansys:1,matlab@flex:1": "matlab@flex", "matlab@flex": "matlab@flex",
		"unknown:1": "", "ansys:4|matlab@flex:1": "", "ansys:x": "",
	} {
		if got := LacksLicense(q, slurm.Waiting{Job: &slurm.Job{Licenses: asks}}); got != want {
			t.Errorf("%q: lacks %q, want %q", asks, got, want)
		}
	}
}
