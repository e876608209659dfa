package gpuhours

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// at returns the time this many seconds after the beginning of the test's hour.
func at(seconds int64) time.Time { return time.Unix(1_800_000_000+seconds, 0) }

// record returns an accounting record of user1 on n1. requested and allocated are lists of TRES.
func record(t *testing.T, job uint32, from, to int64, requested, allocated, text string) slurm.Allocation {
	t.Helper()
	a := slurm.Allocation{Partition: "gpu"}
	a.ID, a.User, a.Account, a.Nodes, a.Text = job, "user1", "phys", []string{"n1"}, text
	a.Start = at(from)
	if to > 0 {
		a.End = at(to)
	}
	var err error
	if a.Requested, err = slurm.ParseTRES(requested); err != nil {
		t.Fatal(err)
	}
	if a.Allocated, err = slurm.ParseTRES(allocated); err != nil {
		t.Fatal(err)
	}
	return a
}

// summary returns the summary of a run on an A100-40GB of node n1.
func summary(node, profile string, from, seconds int64) string {
	return fmt.Sprintf("caelum:run=%s,%s,a100,at=%d,ran=%ds", node, profile, at(from).Unix(), seconds)
}

func TestHours(t *testing.T) {
	const one = "gres/gpu=1,gres/mig:1g.5gb=1,gres/mig=1"
	const one10 = "gres/mig:1g.10gb=1,gres/mig=1"
	const whole = "gres/gpu:a100=14,gres/mig:1g.5gb=7,gres/mig:7g.40gb=2,gres/mig:closed=40,gres/mig=49"
	for _, test := range []struct {
		name         string
		records      []slurm.Allocation
		slices, gpus float64
		unknown      string
	}{
		{name: "the summary contains the larger slice that the run got", slices: 98, gpus: 98. / 4,
			records: []slurm.Allocation{record(t, 1, 0, 100, one, one, summary("n1", "2g.10gb", 1, 98))}},
		{name: "without a summary, the request counts for the whole run", slices: 100, gpus: 100. / 8,
			records: []slurm.Allocation{record(t, 1, 0, 100, one, one, "")}},
		{name: "a run that has not ended counts until the end of the period", slices: 3600, gpus: 450,
			records: []slurm.Allocation{record(t, 1, 0, 0, one, one, "")}},
		{name: "only the part within the period counts", slices: 10, gpus: 10. / 8,
			records: []slurm.Allocation{record(t, 1, -90, 10, one, one, summary("n1", "1g.5gb", -90, 100))}},
		{name: "an --exclusive job counts with its request", slices: 100, gpus: 100. / 8,
			records: []slurm.Allocation{record(t, 1, 0, 100, one, whole, "")}},
		{name: "an --exclusive job without GPUs holds no slices",
			records: []slurm.Allocation{record(t, 1, 0, 100, "cpu=4", whole, "")}},
		{name: "two nodes have two summaries", slices: 195, gpus: 95./8 + 100./4,
			records: []slurm.Allocation{record(t, 1, 0, 100, "gres/mig:1g.5gb=2", "gres/mig:1g.5gb=2,gres/mig=2",
				summary("n1", "1g.5gb", 0, 95)+" "+summary("n2", "2g.10gb", 0, 100))}},
		{name: "if the summary of a node is missing, the request counts", slices: 200, gpus: 200. / 8,
			records: []slurm.Allocation{record(t, 1, 0, 100, "gres/mig:1g.5gb=2", "gres/mig:1g.5gb=2,gres/mig=2",
				summary("n1", "1g.5gb", 0, 95))}},
		{name: "the newest record of a requeued job has the summaries of both runs", slices: 140, gpus: 90./8 + 50./2,
			records: []slurm.Allocation{record(t, 1, 0, 100, one, one, ""), record(t, 1, 300, 360, one, one,
				summary("n1", "1g.5gb", 5, 90)+" "+summary("n1", "3g.20gb", 305, 50)+",restart=1")}},
		{name: "a full GPU counts as one GPU", slices: 200, gpus: 200,
			records: []slurm.Allocation{record(t, 1, 0, 100, "gres/mig:full=2", "gres/mig:full=2,gres/mig=2", "")}},
		{name: "a whole GPU on a node without slices counts as one GPU", slices: 400, gpus: 400,
			records: []slurm.Allocation{record(t, 1, 0, 100, "gres/gpu=4", "gres/gpu=4,gres/gpu:v100=4", "")}},
		{name: "whole GPUs before and after Caelum managed the node", slices: 200 + 90 + 300, gpus: 200 + 90./8 + 300,
			records: []slurm.Allocation{
				record(t, 1, 0, 100, "gres/gpu=2", "gres/gpu=2", ""),
				record(t, 2, 200, 300, one, one, summary("n1", "1g.5gb", 201, 90)),
				record(t, 3, 250, 260, "gres/gpu=1", "gres/gpu=1", ""), // a job that Caelum refused
				record(t, 4, 400, 500, "gres/gpu=3", "gres/gpu=3", ""),
			}},
		{name: "a profile whose share depends on the model", slices: 100, unknown: "1g.10gb",
			records: []slurm.Allocation{record(t, 1, 0, 100, "gres/mig:1g.10gb=1", "gres/mig:1g.10gb=1", "")}},
		{name: "the type of gres/gpu tells the model", slices: 100, gpus: 100. / 8, records: []slurm.Allocation{
			record(t, 1, 0, 100, "gres/mig:1g.10gb=1", "gres/gpu:h100=1,gres/gpu=1,gres/mig:1g.10gb=1", "")}},
		{name: "a100 may be an A100-40GB or an A100-80GB", slices: 90, unknown: "1g.10gb",
			records: []slurm.Allocation{record(t, 1, 0, 100, one10, one10, summary("n1", "1g.10gb", 0, 90))}},
		{name: "another run shows that the node has an A100-40GB", slices: 90 + 80, gpus: 90./4 + 80./4,
			records: []slurm.Allocation{
				record(t, 1, 0, 100, one10, one10, summary("n1", "1g.10gb", 0, 90)),
				record(t, 2, 0, 100, "gres/mig:2g.10gb=1", "gres/mig:2g.10gb=1", summary("n1", "2g.10gb", 0, 80)),
			}},
		{name: "AccountingStorageTRES without profiles", slices: 100, unknown: "",
			records: []slurm.Allocation{record(t, 1, 0, 100, "gres/mig=1", "gres/gpu=1,gres/mig=1", "")}},
		{name: "a job without GPUs", records: []slurm.Allocation{record(t, 1, 0, 100, "cpu=1", "cpu=1", "")}},
		{name: "a run outside the period",
			records: []slurm.Allocation{record(t, 1, -200, -100, one, one, summary("n1", "1g.5gb", -200, 100))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var slices, gpus float64
			var unknown []string
			for _, r := range Hours(test.records, at(0), at(3600)) {
				slices, gpus, unknown = slices+r.SliceSeconds, gpus+r.GPUSeconds, append(unknown, r.Unknown...)
			}
			if math.Abs(slices-test.slices) > 1e-9 || math.Abs(gpus-test.gpus) > 1e-9 ||
				strings.Join(unknown, " ") != test.unknown {
				t.Errorf("%v slice-seconds, %v GPU-seconds, unknown %q; want %v, %v, %q",
					slices, gpus, unknown, test.slices, test.gpus, test.unknown)
			}
		})
	}
}

func TestSum(t *testing.T) {
	unknown := []string{"1g.10gb"}
	runs := []Run{
		{Job: 1, Account: "a", User: "u", Partition: "p", SliceSeconds: 3600, GPUSeconds: 900},
		{Job: 2, Account: "b", User: "u", Partition: "p", SliceSeconds: 3600, GPUSeconds: 3600},
		{Job: 3, Account: "a", User: "v", Partition: "q", Ended: true, SliceSeconds: 7200, Unknown: unknown},
		{Job: 4, Account: "a", User: "v", Partition: "q", SliceSeconds: 3600, Unknown: unknown},
	}
	totals, err := Sum(runs, []string{"account"})
	if got := fmt.Sprint(totals); err != nil || got != "[{b   1 1 1 0 0} {a   3 4 0.25 2 1}]" {
		t.Errorf("%s, %v", got, err)
	}
	totals, err = Sum(runs, nil)
	if got := fmt.Sprint(totals); err != nil || got != "[{   4 5 1.25 2 1}]" {
		t.Errorf("%s, %v", got, err)
	}
	for _, keys := range [][]string{{"qos"}, {"user", "user"}} {
		if _, err := Sum(runs, keys); err == nil {
			t.Errorf("%v: no error", keys)
		}
	}
}
