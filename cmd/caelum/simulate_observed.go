package main

import (
	"fmt"
	"strconv"

	"caelum/internal/controller/repo"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/sim/trace"
)

// observedWorkload reads the jobs in the files of `caelumd observe`. A job with one GPU needs its peak memory and the
// margin for a single run; it is as fast on a slice as its utilisation suggests. A job with several GPUs needs whole
// GPUs, and a job whose usage is unknown is assumed to need one.
func observedWorkload(files []string) (*trace.Workload, error) {
	type id struct {
		job     uint32
		restart int
	}
	runs, order := map[id]*repo.Observed{}, []id(nil)
	for _, name := range files {
		f, err := repo.OpenRuns(name)
		if err != nil {
			return nil, err
		}
		err = repo.EachRun(f, func(n repo.Observed) error {
			k := id{n.Job, n.Restart}
			all := runs[k]
			switch {
			case all == nil:
				runs[k], order = &n, append(order, k)
			case all.Node != n.Node: // another node of the same run
				all.Slices += n.Slices
				all.PeakMiB, all.Seconds = max(all.PeakMiB, n.PeakMiB), max(all.Seconds, n.Seconds)
				all.Samples = min(all.Samples, n.Samples)
			}
			return nil
		})
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	w := &trace.Workload{}
	for _, k := range order {
		n := runs[k]
		j := observedJob(n)
		switch {
		case j.Slices > 1:
			w.Several++
		case n.Samples == 0:
			w.Assumed++
		}
		w.Jobs = append(w.Jobs, j)
	}
	w.Settle()
	return w, nil
}

func observedJob(n *repo.Observed) trace.Job {
	submit := n.Submit
	if submit == 0 {
		submit = n.Start // a line of `caelum repo export`
	}
	j := trace.Job{
		ID: strconv.FormatUint(uint64(n.Job), 10), Submit: float64(submit), Duration: n.Seconds,
		Limit: float64(n.Limit), Waited: max(0, float64(n.Start-submit)), Compute: 1, Memory: 1,
	}
	if gpus := max(n.GPUs*n.Nodes, n.Slices); gpus > 1 {
		j.Slices, j.Nodes = gpus, n.Nodes
		return j
	}
	if n.Samples == 0 {
		return j
	}
	j.Compute, j.Memory, j.MemoryMiB = 0, 0, n.PeakMiB*(1+predict.DefaultSite.Margin)
	compute, _ := mig.Claims(n.Profile)
	busy := predict.UnknownBusy
	switch {
	case n.Util >= 0 && compute > 0:
		busy, j.Slowest = predict.BusyOn(n.Util, compute), 1/predict.DefaultSite.MaxSlowdown
	case n.GPUUtil >= 0 && compute > 0: // an upper bound, because the program may use only some of the SMs
		busy = min(busy, predict.BusyOn(n.GPUUtil, compute))
	}
	j.Speed = map[string]float64{}
	for _, b := range mig.Models() {
		for _, p := range b.Profiles {
			j.Speed[p.Name] = 1 / predict.Slowdown(busy, p.Compute, b.Compute())
		}
	}
	return j
}
