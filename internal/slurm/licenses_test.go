package slurm

import "testing"

// TestLacksLicense uses the output of `scontrol show licenses` of 22.05.8.
func TestLacksLicense(t *testing.T) {
	free, err := parseLicenses("LicenseName=ansys\n    Total=4 Used=1 Free=3 Reserved=0 Remote=no\n" +
		"LicenseName=matlab@flex\n    Total=1 Used=1 Free=0 Reserved=0 Remote=yes\n")
	if err != nil {
		t.Fatal(err)
	}
	q := Queue{Licenses: free}
	for asks, want := range map[string]string{
		"": "", "ansys": "", "ansys:3": "", "ansys:4": "ansys",
		"ansys:1,matlab@flex:1": "matlab@flex", "matlab@flex": "matlab@flex",
		"unknown:1": "", "ansys:4|matlab@flex:1": "", "ansys:x": "",
	} {
		if got := q.LacksLicense(Waiting{Job: Job{Licenses: asks}}); got != want {
			t.Errorf("%q: lacks %q, want %q", asks, got, want)
		}
	}
	if _, err := parseLicenses("LicenseName=a\n Free=many"); err == nil {
		t.Error("a count that is no number was read")
	}
	if free, err := parseLicenses("No licenses configured in Slurm.\n"); err != nil || len(free) != 0 {
		t.Errorf("no licences: %v, %v", free, err)
	}
}
