package slurm

import (
	"os"
	"testing"
)

// TestMIGTotal checks the MIGTotal of two recorded nodes. In the first record, an update had raised the sum of the
// counts to 62, although it is 56 in slurm.conf. In the second record, AccountingStorageTRES does not include
// gres/mig.
func TestMIGTotal(t *testing.T) {
	for file, want := range map[string]int{"node-sum.txt": 56, "node-busy.txt": 0} {
		out, err := os.ReadFile("testdata/22.05.8/" + file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := parseNode(string(out), "n1")
		if err != nil || n.MIGTotal != want {
			t.Errorf("%s: %d, %v; want %d", file, n.MIGTotal, err, want)
		}
	}
}
