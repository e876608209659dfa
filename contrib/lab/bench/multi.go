package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// multiModel is the GPU model for traces with jobs that need several GPUs (-ways-multi). Changing its MIG mode does not
// require a reset.
const multiModel = "H100-80GB"

// multiMemoryMiB is the memory of a full multiModel GPU.
const multiMemoryMiB = 81559

// multiSubcluster returns the part of the cluster for a trace with jobs that need 2 or 4 full GPUs on one node. The
// fraction of such jobs is s.multi.
func (s scenarios) multiSubcluster() (*subcluster, error) {
	of, err := mig.ModelByName(multiModel)
	if err != nil {
		return nil, err
	}
	b := &subcluster{Model: of.Select(mig.Plain).WithFull(multiMemoryMiB)}
	for n := range s.nodes {
		b.nodes = append(b.nodes, fmt.Sprint("n", n+1))
	}
	for j := range (trace.Churn{
		Mix: trace.Mixes[0].Mix, Jobs: s.jobs, GPUs: s.nodes * s.gpus, Load: s.load, MeanDuration: s.mean,
		MultiGPU: s.multi, PerNode: s.gpus, Seed: s.seed,
	}).All() {
		j.Profile = profileOf(b.Model, j.Profile)
		b.work = append(b.work, j)
	}
	b.static, err = s.bestSplit(b)
	return b, err
}

// bestSplit returns the fixed layouts with the shortest mean turnaround in a simulation of the trace. The first GPUs
// are full, and the remaining GPUs have MIG layouts. For every number of full GPUs, it tries each maximal layout on all
// remaining GPUs, and each pair of maximal layouts with each layout on one half of the remaining GPUs.
func (s scenarios) bestSplit(b *subcluster) (best sim.Pattern, err error) {
	gpus := slices.Repeat([]*mig.Model{b.Model}, s.nodes*s.gpus)
	least := 0.0
	cut := layouts(b.Model)
	for full := s.gpus; full <= len(gpus); full++ {
		for x := range cut {
			for y := range x + 1 {
				rest := len(gpus) - full
				static := slices.Concat(slices.Repeat(sim.Pattern{b.Model.Full()}, full),
					slices.Repeat(sim.Pattern{cut[x]}, (rest+1)/2), slices.Repeat(sim.Pattern{cut[y]}, rest/2))
				r, err := sim.Run(sim.Config{
					GPUs: gpus, Nodes: slices.Repeat([]int{s.gpus}, s.nodes), Static: static,
					Discipline: sim.EASY, Estimate: limit,
				}, slices.Values(b.work))
				if err != nil {
					return nil, err
				}
				if mean := r.MeanTurnaround(); r.Started == len(b.work) && (best == nil || mean < least) {
					best, least = static, mean
				}
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no fixed layouts can run all jobs of the trace")
	}
	return best, nil
}

// layouts returns one maximal layout for each distinct set of profiles.
func layouts(b *mig.Model) (all []mig.Layout) {
	seen := map[string]bool{}
	for _, l := range b.Maximal() {
		if name := (sim.Pattern{l}).Names(b); l != b.Full() && !seen[name] {
			seen[name] = true
			all = append(all, l)
		}
	}
	return all
}

// class holds the results either of the jobs that need several GPUs or of all other jobs.
type class struct{ waits, turnarounds []float64 }

func (c *class) add(t times) {
	c.waits = append(c.waits, t.start.Sub(t.submit).Seconds())
	c.turnarounds = append(c.turnarounds, t.end.Sub(t.submit).Seconds())
}

// reportMulti prints the waits and turnarounds of each class of jobs.
func (s scenarios) reportMulti(scenario string, work []*submission, jobs map[string]*times) {
	var all, several, one class
	var first, last time.Time
	var late []float64 // the delay of each submission in seconds, relative to the delay of the first
	for _, j := range work {
		t := *jobs[j.id]
		if all.add(t); j.gpus > 1 {
			several.add(t)
		} else {
			one.add(t)
		}
		if first.IsZero() || t.submit.Before(first) {
			first = t.submit
		}
		if t.end.After(last) {
			last = t.end
		}
		late = append(late, (t.submit.Sub(jobs[work[0].id].submit) - (j.at - work[0].at)).Seconds())
	}
	for _, c := range []struct {
		name string
		class
	}{{"all jobs", all}, {"several GPUs", several}, {"one GPU", one}} {
		mean, p95 := meanAndP95(c.waits)
		fmt.Printf("  %-8s %-13s %4d jobs   wait: mean %6.1f s, p95 %6.1f s", scenario, c.name, len(c.waits), mean, p95)
		mean, p95 = meanAndP95(c.turnarounds)
		fmt.Printf("   turnaround: mean %6.1f s, p95 %6.1f s\n", mean, p95)
	}
	mean, p95 := meanAndP95(late)
	fmt.Printf("  %-8s makespan %.0f s; submissions late by %.1f s (mean) and %.1f s (p95)\n",
		scenario, last.Sub(first).Seconds(), mean, p95)
}

func meanAndP95(v []float64) (mean, p95 float64) {
	sorted := slices.Sorted(slices.Values(v))
	for _, x := range sorted {
		mean += x / float64(len(sorted))
	}
	return mean, sorted[min(len(sorted)-1, len(sorted)*95/100)]
}

// slow sets the latencies of the emulated drivers. Without them, switching the MIG mode would take no time.
func (s scenarios) slow(ctx context.Context, c *cluster.Cluster) error {
	for n := range s.nodes {
		node := fmt.Sprint("n", n+1)
		if _, stderr, err := c.ExecNode(ctx, node, "root", "nvml-emulator", "latency", "realistic"); err != nil {
			return fmt.Errorf("latency: %w: %s", err, stderr)
		}
	}
	return nil
}

var modeSet = regexp.MustCompile(`(?m)^\d+ mig-mode gpu=(\d+) .*\bmig=(on|off)`)

// reportSwitches prints the number of times that the MIG mode was switched, according to the logs of the emulated
// drivers.
func (s scenarios) reportSwitches(ctx context.Context, c *cluster.Cluster) error {
	switches := map[string]int{}
	for n := range s.nodes {
		out, stderr, err := c.ExecNode(ctx, fmt.Sprint("n", n+1), "root", "nvml-emulator", "log")
		if err != nil {
			return fmt.Errorf("nvml-emulator log: %w: %s", err, stderr)
		}
		mode := map[string]string{} // by GPU; MIG mode is initially on
		for _, m := range modeSet.FindAllStringSubmatch(out, -1) {
			if cmp.Or(mode[m[1]], "on") != m[2] {
				switches[m[2]]++
			}
			mode[m[1]] = m[2]
		}
	}
	fmt.Printf("  caelum   switches of the MIG mode: %d to off, %d to on\n", switches["off"], switches["on"])
	return nil
}
