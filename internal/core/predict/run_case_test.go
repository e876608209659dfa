package predict

import (
	"strings"
	"testing"
)

// TestSummaryInLowerCase checks that Summaries correctly parses a summary in lower case, as stored by sacctmgr 22.05.8,
// and that the next summary of the same run replaces it.
func TestSummaryInLowerCase(t *testing.T) {
	r := Run{
		Node:      "GPU01",
		Profile:   "2g.10gb",
		GPUType:   "a100",
		Slices:    1,
		Start:     1795339216,
		Seconds:   3590,
		Samples:   3589,
		PeakMiB:   5321,
		MedianMiB: 4800,
		HighMiB:   5100,
		Util:      0.37,
	}
	lower := strings.ToLower(r.Summary())
	got := Summaries(lower)
	if len(got) != 1 || got[0].PeakMiB != 5321 || got[0].HighMiB != 5100 || got[0].Node != "gpu01" {
		t.Errorf("%s: %+v", lower, got)
	}
	if again := WithSummary(lower, r); again != r.Summary() {
		t.Errorf("%s", again)
	}
}
