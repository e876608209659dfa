package slurm

import (
	"maps"
	"testing"
)

// TestLicenses checks the parsing of the output of `scontrol show licenses` (22.05.8).
func TestLicenses(t *testing.T) {
	free, err := parseLicenses("LicenseName=ansys\n    Total=4 Used=1 Free=3 Reserved=0 Remote=no\n" +
		"LicenseName=matlab@flex\n    Total=1 Used=1 Free=0 Reserved=0 Remote=yes\n")
	if want := map[string]int{"ansys": 3, "matlab@flex": 0}; err != nil || !maps.Equal(free, want) {
		t.Errorf("%v %v, want %v", free, err, want)
	}
	free, err = parseLicenses("LicenseName=a\n Total=4 Used=1 Free=3 Mode=2 Nodes=n1\n" +
		"LicenseName=a\n Total=4 Used=2 Free=2 Mode=2 Nodes=n2\n") // 25.05
	if want := map[string]int{"a": 5}; err != nil || !maps.Equal(free, want) {
		t.Errorf("a hierarchical licence: %v %v, want %v", free, err, want)
	}
	if _, err := parseLicenses("LicenseName=a\n Free=many"); err == nil {
		t.Error("no error for a count that is not a number")
	}
	if free, err := parseLicenses("No licenses configured in Slurm.\n"); err != nil || len(free) != 0 {
		t.Errorf("no licences: %v, %v", free, err)
	}
}
