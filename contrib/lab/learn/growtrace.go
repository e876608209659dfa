package main

import (
	"fmt"
	"io"
	"strconv"

	"caelum/contrib/lab/growtrace"
	"caelum/internal/sim/trace"
)

// compareTrace prints, for each seed, the simulated results of the trace that `devcluster-bench -grow` runs with the
// given number of jobs. The table has the same columns as that of devcluster-bench.
func compareTrace(w io.Writer, jobs int, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	for _, seed := range seeds {
		fmt.Fprintf(w, "The trace of devcluster-bench -grow %d -grow-seed %d:\n\n", jobs, seed)
		var results []growtrace.Result
		for _, mode := range growModes {
			t, err := playTrace(n, mode, growtrace.Trace(seed, jobs), seed)
			if err != nil {
				return fmt.Errorf("seed %d, %s: %w", seed, mode, err)
			}
			results = append(results, growtrace.Result{
				Name: "simulator, " + mode, Jobs: t.jobs, Turnaround: t.turnaround, Short: t.ran,
				ShortTurnaround: t.affected, Used: t.used, Lost: t.lost, Failures: t.failures, Requeues: t.requeues,
				Stopped: t.stopped, Needless: t.needless,
			})
		}
		if err := growtrace.Print(w, results); err != nil {
			return err
		}
	}
	return nil
}

// playTrace simulates a trace. As on the devcluster, an unknown job is given the smallest profile.
func playTrace(n node, mode string, jobs []growtrace.Job, seed uint64) (growTally, error) {
	s := site{
		grow: mode, profile: n.tightest(0), notice: growtrace.Notice, delay: growtrace.RequeueDelay,
		loading: growtrace.Loading,
	}
	var all []*arrival
	for k, j := range jobs {
		a := &arrival{
			submission: submission{peak: j.PeakMiB, seen: 1, seconds: j.Seconds, state: "COMPLETED", until: j.Until},
			Job: trace.Job{
				ID: strconv.Itoa(k), Submit: j.Submit, Duration: j.Seconds, Limit: j.Limit, MemoryMiB: j.PeakMiB,
			},
			key: strconv.Itoa(k), Curve: j.Curve,
		}
		if j.Until < 1 {
			a.state = "FAILED"
		}
		all = append(all, a)
	}
	g := newGrowth(n, s, all, seed)
	err := simulateGrowth(n, growtrace.GPUs, g, all)
	return g.growTally, err
}
