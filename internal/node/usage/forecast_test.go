package usage

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/usage/usagetest"
)

// growing is a Monitor with one job on a slice of 10,000 MiB, whose memory the test sets.
type growing struct {
	*Monitor
	t        *testing.T
	clock    time.Duration
	mib      float64
	sampler  *Sampler
	foreseen []predict.Forecast
	at       []time.Duration // the times of the calls to Foreseen, since the start of the job
}

const grown, slicedMiB = 7, 10000

func newGrowing(t *testing.T, grow string) *growing {
	g := &growing{t: t, clock: time.Hour}
	g.restart(grow, nil)
	return g
}

// restart replaces the Monitor, as a restart of the agent does.
func (g *growing) restart(grow string, repo *usagetest.Repository) {
	log := logrus.New()
	log.SetLevel(logrus.PanicLevel)
	g.Monitor = NewMonitor(Options{
		Node: "n1", Log: logrus.NewEntry(log),
		Now:   func() time.Time { return began.Add(g.clock - time.Hour) },
		Clock: func() time.Duration { return g.clock },
		Meter: func(int, gpu.Instance) (gpu.Meter, error) { return g, nil },
		Foreseen: func(job uint32, f predict.Forecast) {
			if job != grown {
				g.t.Errorf("a forecast of job %d", job)
			}
			g.foreseen, g.at = append(g.foreseen, f), append(g.at, g.clock-time.Hour)
		},
	})
	slice := Slice{Instance: gpu.Instance{UUID: "MIG-1", Profile: "2g.10gb"}, MemoryMiB: slicedMiB}
	g.Begin(api.Lease{Job: grown, Since: began.Unix(), Grow: grow}, "a100", []Slice{slice})
	if repo != nil {
		g.SetRepository(repo, usagetest.NewAccounting())
		g.Confirm(grown)
	}
	g.sampler = g.Sampler(0)
}

func (g *growing) Read() (gpu.Use, error) {
	return gpu.Use{MemoryMiB: g.mib, Util: -1, Processes: 1}, nil
}
func (g *growing) Close() {}

// run lets the job run for some seconds. mib returns the memory that NVML shows, and report what process 1 reports
// every ten seconds. Both are functions of the seconds since the start.
func (g *growing) run(seconds int, mib func(at float64) float64, report func(at float64) api.MemoryReport) {
	for range seconds {
		g.clock += time.Second
		at := (g.clock - time.Hour).Seconds()
		if report != nil && int(at)%10 == 0 {
			r := report(at)
			r.UUID = "MIG-1"
			if !g.Report(grown, 1, r) {
				g.t.Fatalf("a report after %v s was rejected", at)
			}
		}
		g.mib = mib(at)
		g.sampler.Sample()
	}
}

func ramp(at float64) float64 { return 2000 + 5*at }

// iterations is what a job that makes one iteration per second and ends after an hour reports.
func iterations(at float64) api.MemoryReport {
	return api.MemoryReport{Iteration: int64(at), Iterations: 3600}
}

// TestForeseen checks that the Monitor calls Foreseen before a growing job fails, once a minute until the run ends, and
// only if the lease allows a requeue before a failure. The owner must see the forecast in any case.
func TestForeseen(t *testing.T) {
	for _, mode := range []string{api.GrowForecast, "oom", ""} {
		g := newGrowing(t, mode)
		g.run(900, ramp, iterations)
		l := g.WithUse(api.Lease{Job: grown, Slices: []api.Slice{{UUID: "MIG-1"}}})
		use := l.Slices[0].Use
		if use == nil || !use.Exceeds || use.ForecastMiB < 19000 || use.ForecastMiB > 21000 {
			t.Errorf("mode %q: %+v, want a forecast of 20000 MiB", mode, use)
		}
		if mode != api.GrowForecast {
			if len(g.at) != 0 {
				t.Errorf("mode %q: Foreseen was called after %v", mode, g.at)
			}
			continue
		}
		if len(g.at) < 3 || g.at[0] > 750*time.Second || g.foreseen[0].SliceMiB != slicedMiB {
			t.Errorf("Foreseen was called after %v with %+v", g.at, g.foreseen)
		}
		for k := 1; k < len(g.at); k++ {
			if pause := g.at[k] - g.at[k-1]; pause < foreseenEvery || pause > 2*foreseenEvery {
				t.Errorf("a pause of %v between two calls", pause)
			}
		}
		calls := len(g.at)
		g.End(grown, false)
		if g.run(100, ramp, nil); len(g.at) != calls {
			t.Error("Foreseen was called after the end of the run")
		}
	}
}

// TestForecastOfAllocator checks that memory that the allocator could return does not count: the allocator reserves
// more and more memory, but the program needs 3000 MiB. Without reports, the same samples lead to an alarm, and after
// the process has ended, its last report no longer counts.
func TestForecastOfAllocator(t *testing.T) {
	const mib = 1 << 20
	constant := func(at float64) api.MemoryReport {
		r := iterations(at)
		r.Reserved, r.PeakAllocated, r.Unreleasable = int64(ramp(at)-500)*mib, 2400*mib, 100*mib
		return r
	}
	g := newGrowing(t, api.GrowForecast)
	g.run(900, ramp, constant)
	f := g.open[grown].Slices[0].forecast
	if len(g.at) != 0 || f.PeakMiB < 2950 || f.PeakMiB > 3200 {
		t.Errorf("Foreseen was called after %v; the forecast is %+v, want 3000 MiB", g.at, f)
	}
	if slack := g.open[grown].slackMiB("MIG-1", g.clock); slack < 3400 {
		t.Errorf("the allocator could return %v MiB", slack)
	}
	if slack := g.open[grown].slackMiB("MIG-1", g.clock+2*reportValid); slack != 0 {
		t.Errorf("after the process has ended, its allocator could return %v MiB", slack)
	}
}

// TestForecastContinues checks that a forecast survives a restart of the agent, and that an earlier release's
// observation, which has no Series, can be continued.
func TestForecastContinues(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		g := newGrowing(t, api.GrowForecast)
		repo := usagetest.NewRepository()
		g.SetRepository(repo, usagetest.NewAccounting())
		g.run(600, ramp, nil)
		g.Flush(true)
		if earlier {
			for id, o := range repo.Open {
				o.Text = withoutSeries(t, o.Text)
				repo.Open[id] = o
			}
		}
		g.restart(api.GrowForecast, repo)
		o := g.open[grown]
		if o.Slices[0].Samples != 600 {
			t.Fatalf("the new agent continues with %d samples", o.Slices[0].Samples)
		}
		g.run(10, ramp, nil)
		want := ramp(1220) // the expected end is twice the duration so far
		if earlier {
			want = ramp(610)
		}
		if f := o.Slices[0].forecast; f.PeakMiB < want-150 || f.PeakMiB > want+150 {
			t.Errorf("observation of an earlier release: %v; the forecast is %+v, want %v MiB", earlier, f, want)
		}
	}
}

// withoutSeries returns an observation as an earlier release stored it.
func withoutSeries(t *testing.T, text []byte) []byte {
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	for _, s := range o["Slices"].([]any) {
		delete(s.(map[string]any), "Series")
	}
	text, err := json.Marshal(o)
	if err != nil || strings.Contains(string(text), "Series") {
		t.Fatalf("%v %s", err, text)
	}
	return text
}

// TestOutOfMemory checks what counts as evidence that a job ran out of memory. If a process continues for more than
// oomRecent after a failed allocation, it has handled the failure, for example by choosing a smaller batch.
func TestOutOfMemory(t *testing.T) {
	g := newGrowing(t, "oom")
	report := func(pid, ooms int, want bool) {
		t.Helper()
		if got := g.Report(grown, pid, api.MemoryReport{UUID: "MIG-1", OOMs: ooms}); got != want {
			t.Errorf("the report of process %d is accepted: %v", pid, got)
		}
	}
	check := func(want bool) {
		t.Helper()
		if got := g.OutOfMemory(grown); got != want {
			t.Errorf("OutOfMemory is %v", got)
		}
	}
	check(false)
	report(1, 0, true)
	check(false)
	report(1, 0, false) // in the same second
	report(1, 1, true)  // an error is never too early
	check(true)
	g.clock += oomRecent
	report(1, 1, true)
	check(true)
	g.clock += time.Second
	report(1, 1, true)
	check(false)
	report(2, 1, true) // another process fails at its first report
	check(true)
	for pid := 3; pid <= maxReporters; pid++ {
		report(pid, 0, true)
	}
	report(maxReporters+1, 1, false)
	if g.OutOfMemory(grown + 1) {
		t.Error("another job ran out of memory")
	}
}

// TestMarkEnd checks that the run shows why the agent ended it.
func TestMarkEnd(t *testing.T) {
	g := newGrowing(t, "oom")
	repo := usagetest.NewRepository()
	g.SetRepository(repo, usagetest.NewAccounting())
	g.run(5, ramp, nil)
	g.MarkEnd(grown, predict.EndForeseen, 12800)
	g.MarkEnd(grown+1, predict.EndOOM, 0) // an unknown job
	g.End(grown, false)
	g.Flush(false)
	runs := repo.Kept()
	if len(runs) != 1 || runs[0].End != predict.EndForeseen || runs[0].ForeseenMiB != 12800 {
		t.Errorf("%+v", runs)
	}
}
