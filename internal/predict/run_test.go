package predict

import "testing"

// TestSummary: what a summary says is read back, whatever stands around it.
func TestSummary(t *testing.T) {
	r := Run{Node: "n1", Profile: "2g.10gb", Board: "a100", Slices: 2, Start: 1795339216, Seconds: 3590, Samples: 3589, PeakMiB: 5321, MedianMiB: 4800, HighMiB: 5100, Util: 0.37, Restart: 1}
	const word = "caelum:run=n1,2g.10gbx2,a100,at=1795339216,ran=3590s,peak=5321M,p95=5100M,median=4800M,util=37%,samples=3589,restart=1"
	if got := r.Summary(); got != word {
		t.Errorf("%s", got)
	}
	record := WithSummary("JS1:abc  x ", r)
	if record != "JS1:abc  x  "+word || WithSummary(record, r) != record {
		t.Errorf("%q", record)
	}
	if got := Summaries(record + " caelum:run=forged"); len(got) != 1 || got[0] != r {
		t.Errorf("%+v", got)
	}
}
