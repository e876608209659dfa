package predict

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSummary checks that a summary is parsed correctly from a record that also contains other text.
func TestSummary(t *testing.T) {
	r := Run{
		Node:      "n1",
		Profile:   "2g.10gb",
		GPUType:   "a100",
		Slices:    2,
		Start:     1795339216,
		Seconds:   3590,
		Samples:   3589,
		PeakMiB:   5321,
		MedianMiB: 4800,
		HighMiB:   5100,
		Util:      0.37,
		Restart:   1,
		Xids:      "13x3+31",
	}
	const word = "caelum:run=n1,2g.10gbx2,a100,at=1795339216,ran=3590s," +
		"peak=5321M,p95=5100M,median=4800M,util=37%,samples=3589,restart=1,xid=13x3+31"
	if got := r.Summary(); got != word {
		t.Errorf("%s", got)
	}
	record := WithSummary("JS1:abc  x ", r)
	if record != "JS1:abc  x  "+word || WithSummary(record, r) != record {
		t.Errorf("%q", record)
	}
	if got := Summaries(record + " caelum:run=forged"); len(got) != 1 || !reflect.DeepEqual(got[0], r) {
		t.Errorf("%+v", got)
	}
}

// drawSummarized returns a random run that a summary can represent.
func drawSummarized(t *rapid.T) Run {
	whole := func(name string, most int) float64 { return float64(rapid.IntRange(0, most).Draw(t, name)) }
	names := []string{"1g.5gb", "7g.40gb", "1g.5gb+me", "1g.5gb-me", "4g.71gb+gfx"}
	r := Run{
		Node:    rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`).Draw(t, "node"),
		Profile: rapid.SampledFrom(names).Draw(t, "profile"),
		GPUType: rapid.SampledFrom([]string{"a100", "h100", "rtx_pro_6000"}).Draw(t, "board"),
		Slices:  rapid.IntRange(1, 8).Draw(t, "slices"),
		Start:   rapid.Int64Range(1, 4e9).Draw(t, "start"),
		Seconds: whole("seconds", 1e7),
		Samples: rapid.IntRange(0, 3).Draw(t, "samples"),
		Restart: rapid.IntRange(0, 2).Draw(t, "restart"),
		Util:    -1,
		Xids:    rapid.SampledFrom([]string{"", "31", "13x12+94"}).Draw(t, "xids"),
	}
	if r.Samples > 0 {
		r.PeakMiB, r.HighMiB, r.MedianMiB = whole("peak", 200000), whole("high", 200000), whole("median", 200000)
		r.End = rapid.SampledFrom([]string{"", EndOOM, EndForeseen}).Draw(t, "end")
		r.ForeseenMiB = whole("foreseen", 200000)
		if percent := rapid.IntRange(-1, 100).Draw(t, "util"); percent >= 0 {
			r.Util = float64(percent) / 100
		}
	}
	return r
}

// TestSummaryRoundTrip checks that every run is parsed unchanged from its summary, and that a record with several
// runs has each of them once and in order.
func TestSummaryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		identity := func(r Run) [2]any { return [2]any{r.Node, r.Start} }
		runs := rapid.SliceOfNDistinct(rapid.Custom(drawSummarized), 1, 5, identity).Draw(t, "runs")
		record := ""
		for _, r := range runs {
			record = WithSummary(record, r)
		}
		for k, got := range Summaries(record) {
			if math.Abs(got.Util-runs[k].Util) > 1e-12 {
				t.Fatalf("utilisation %v of %v", got.Util, runs[k].Util)
			}
			got.Util = runs[k].Util
			if !reflect.DeepEqual(got, runs[k]) {
				t.Fatalf("%+v, want %+v", got, runs[k])
			}
		}
		if n := len(Summaries(record)); n != len(runs) {
			t.Fatalf("%d of %d runs in %q", n, len(runs), record)
		}
	})
}

// TestSummaryKeepsText checks that WithSummary preserves the other text of a record before the summaries, and that a
// later summary of a run replaces the earlier one.
func TestSummaryKeepsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab:=,\n\t \"'\\;é"))).Draw(t, "text")
		text = strings.TrimLeft(text, " ")
		r := drawSummarized(t)
		record := WithSummary(text, r)
		if !strings.HasPrefix(record, text) || !strings.HasSuffix(record, r.Summary()) {
			t.Fatalf("%q became %q", text, record)
		}
		longer := r
		longer.Seconds += 60
		if got, want := WithSummary(record, longer), WithSummary(text, longer); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// TestSummaryMalformed checks that Summaries ignores malformed summaries, and parses those before and after them.
func TestSummaryMalformed(t *testing.T) {
	const good = "caelum:run=n1,1g.5gb,a100,at=1,ran=2s"
	for _, bad := range []string{
		"", "n1", "n1,1g.5gb,a100", ",1g.5gb,a100,at=1,ran=2s", "n1,,a100,at=1,ran=2s", "n1,1g.5gb,,at=1,ran=2s",
		"n1,1g.5gb,a100,at=1", "n1,1g.5gb,a100,ran=2s", "n1,1g.5gb,a100,at=0,ran=2s", "n1,1g.5gb,a100,at=-1,ran=2s",
		"n1,1g.5gb,a100,at=1,ran=2", "n1,1g.5gb,a100,at=1,ran=NaNs", "n1,1g.5gb,a100,at=1,ran=-2s",
		"n1,1g.5gb,a100,at=1,ran=1e99s", "n1,1g.5gb,a100,at=1,ran=Infs", "n1,1g.5gb,a100,at=1,ran=2s,peak=3M",
		"n1,1g.5gb,a100,at=1,ran=2s,samples=3", "n1,1g.5gb,a100,at=1,at=1,ran=2s",
		"n1,1g.5gb,a100,at=1,ran=2s,peak=1M,util=101%,samples=3", "n1,1g.5gb,a100,at=1,ran=2s,restart=-1",
		"n1,1g.5gb,a100,at=1,ran=2s,what",
	} {
		if got := Summaries(good + " caelum:run=" + bad + " " + good); len(got) != 2 {
			t.Errorf("%q: %d summaries", bad, len(got))
		}
	}
	if got := Summaries(good + ",new=thing"); len(got) != 1 {
		t.Error("a field of a later version is not ignored")
	}
	if got := Summaries(good + ",end=later"); len(got) != 1 || got[0].End != "" {
		t.Errorf("a reason of a later version is not ignored: %+v", got)
	}
}

// FuzzSummaries checks that the runs in any record are valid, and that each run can be parsed from its own summary.
func FuzzSummaries(f *testing.F) {
	f.Add("caelum:run=n1,2g.10gbx2,a100,at=1795339216,ran=3590s," +
		"peak=5321M,p95=5100M,median=4800M,util=37%,samples=3589,restart=1")
	f.Add("x caelum:run=n1,1g.5gb,a100,at=1,ran=0.5s caelum:run=,,,")
	f.Fuzz(func(t *testing.T, record string) {
		for _, r := range Summaries(record) {
			if r.Node == "" || r.Slices < 1 || r.Start < 1 || !(r.Seconds >= 0) || !(r.PeakMiB >= 0) || r.Util > 1 ||
				r.Samples < 0 {
				t.Fatalf("%+v of %q", r, record)
			}
			again := Summaries(r.Summary())
			if len(again) != 1 || !reflect.DeepEqual(Summaries(again[0].Summary()), again) {
				t.Fatalf("%+v has the summary %s", r, r.Summary())
			}
			if n, _ := Predict(History{Runs: []Run{r}}, DefaultSite); n.PeakMiB < r.PeakMiB && r.Samples > 0 {
				t.Fatalf("%v MiB, the run used %v", n.PeakMiB, r.PeakMiB)
			}
		}
	})
}

// TestSummaryEnd checks the summary of a run that the agent ended because it ran out of memory, also in lower case, as
// stored by sacctmgr 22.05.8.
func TestSummaryEnd(t *testing.T) {
	r := Run{
		Node: "n1", Profile: "1g.5gb", GPUType: "a100", Slices: 1, Start: 1795339216, Seconds: 600, Samples: 599,
		PeakMiB: 3000, HighMiB: 2900, MedianMiB: 2000, Util: -1, End: EndForeseen, ForeseenMiB: 12800,
	}
	const word = "caelum:run=n1,1g.5gb,a100,at=1795339216,ran=600s,peak=3000M,p95=2900M,median=2000M,samples=599," +
		"end=foreseen,foreseen=12800M"
	if got := r.Summary(); got != word {
		t.Errorf("%s", got)
	}
	if got := Summaries(strings.ToLower(word)); len(got) != 1 || !reflect.DeepEqual(got[0], r) {
		t.Errorf("%+v", got)
	}
}

// TestEndedForMemory checks that a run that the agent ended because its memory was insufficient leads to a larger
// profile, regardless of the run's state in Slurm and its peak, and that a complete run on the same profile refutes
// this.
func TestEndedForMemory(t *testing.T) {
	model, all := plain(t, "A100-40GB")
	for _, state := range []string{"", "REQUEUED", "FAILED", "CANCELLED by 0", "COMPLETED"} {
		short := Run{
			Job: 1, GPUType: "a100", Profile: "1g.5gb", State: state, PeakMiB: 2000, Samples: 60, Util: -1,
			End: EndForeseen,
		}
		need, ok := Predict(History{Level: ByKey, Runs: []Run{short}}, DefaultSite)
		if got := need.AtLeast(model, all, "1g.5gb"); ok || got != "1g.10gb" {
			t.Errorf("%s: %s, %v: %s", state, got, ok, need.Why)
		}
		again := short
		again.Job, again.State, again.End = 2, "COMPLETED", ""
		need, ok = Predict(History{Level: ByKey, Runs: []Run{short, again}}, DefaultSite)
		if got, _ := need.On(model, all); !ok || got != "1g.5gb" {
			t.Errorf("%s, then complete: %s, %v: %s", state, got, ok, need.Why)
		}
	}
	unsampled := Run{Job: 1, GPUType: "a100", Profile: "1g.5gb", State: "REQUEUED", Util: -1, End: EndOOM}
	need, _ := Predict(History{Level: ByKey, Runs: []Run{unsampled}}, DefaultSite)
	if got := need.AtLeast(model, all, "1g.5gb"); got != "1g.10gb" {
		t.Errorf("a run that ended before its first sample: %s", got)
	}
}

// TestAddXid checks that a run's summary contains a limited number of different Xid errors.
func TestAddXid(t *testing.T) {
	xids := ""
	for code := range maxXids + 3 {
		xids = AddXid(AddXid(xids, code+1), 1)
	}
	codes, counts := ParseXids(xids)
	if len(codes) != maxXids || counts[0] != maxXids+4 || counts[1] != 1 {
		t.Errorf("%s", xids)
	}
}
