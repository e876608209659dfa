package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// mostReplayed is the maximum number of jobs that caelum usage --saved simulates: those that were submitted last.
const mostReplayed = 100_000

// replay is the simulation of the jobs' waits: as they were, with slices, and with whole GPUs.
type replay struct {
	simulation
	// Describe is the text above the table: the jobs, the GPUs and the assumptions.
	Describe string `json:"description"`
}

// replay simulates the jobs on slices that slurmdbd has of the period, on the GPUs of --gpus or on those that the
// agents manage. full is true if GPUs may be full.
func (o usageOptions) replay(
	ctx context.Context, policy string, from, to time.Time, full bool,
) (r replay, err error) {
	const format = "2006-01-02T15:04:05"
	s := simulateOptions{fromSacct: true, since: from.Format(format), until: to.Format(format), queue: "easy",
		ends: "limits", gpus: o.gpus, wholeGPUs: full}
	c := sim.Config{Discipline: sim.EASY, Estimate: ownLimits}
	if o.gpus != nil {
		c.GPUs, c.Nodes, err = s.cluster()
	} else {
		c.GPUs, c.Nodes, err = managedGPUs(ctx, full)
		s.gpus = []string{fmt.Sprintf("%s on %s", plural(len(c.GPUs), "managed GPU"), plural(len(c.Nodes), "node"))}
	}
	if err != nil {
		return r, err
	}
	workload, err := s.askSacct()
	if err != nil {
		return r, err
	}
	onSlices(workload, c)
	if len(workload.Jobs) == 0 {
		return r, fmt.Errorf("no jobs on slices%s", leftOut(workload.Left))
	}
	r.simulation = newSimulation(s, c, workload)
	for _, name := range []string{policy, "whole"} {
		done, err := s.runPolicy(c, name, workload.Jobs, &progress{})
		if errors.Is(err, sim.ErrNever) {
			done.Never, err = err.Error(), nil
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		done.Policy = "slices"
		if name == "whole" {
			done.Policy = "whole GPUs"
		}
		r.Policies = append(r.Policies, done)
	}
	r.Describe = r.describe(workload.Jobs)
	return r, nil
}

// managedGPUs returns the GPUs that the agents manage, from slurmctld's node records, and the number on each node. It
// leaves out nodes whose agent does not publish its GPUs. full adds the full profile to each model.
func managedGPUs(ctx context.Context, full bool) (gpus []*mig.Model, nodes []int, err error) {
	records, err := newController().NodeRecords(ctx)
	if err != nil {
		return nil, nil, nodesError(err)
	}
	models := map[*mig.Model]*mig.Model{} // the same model must be the same pointer on all nodes
	for _, n := range records {
		state, err := plan.Parse(plan.StateIn(n.Extra))
		if !n.Managed() || err != nil {
			continue
		}
		before := len(gpus)
		for _, g := range state.GPUs {
			if g.Model == nil {
				continue
			}
			if models[g.Model] == nil {
				models[g.Model] = g.Model
				if full && g.Model.Full() == 0 {
					models[g.Model] = withFull(g.Model)
				}
			}
			gpus = append(gpus, models[g.Model])
		}
		if n := len(gpus) - before; n > 0 {
			nodes = append(nodes, n)
		}
	}
	if len(gpus) == 0 {
		return nil, nil, errors.New("slurmctld's node records show no managed GPU; name the GPUs with --gpus")
	}
	return gpus, nodes, nil
}

// onSlices removes the jobs that cannot be simulated both with slices and with whole GPUs: those without slices, those
// that do not fit on the GPUs, and all but the last mostReplayed ones.
func onSlices(w *trace.Workload, c sim.Config) {
	most := len(c.GPUs)
	if c.Nodes != nil {
		most = slices.Max(c.Nodes)
	}
	remove := func(why string, wrong func(trace.Job) bool) {
		before := len(w.Jobs)
		w.Jobs = slices.DeleteFunc(w.Jobs, wrong)
		w.Leave(why, before-len(w.Jobs))
	}
	remove("no slices", func(j trace.Job) bool { return j.Profile == "" })
	remove("more slices on a node than a node has GPUs", func(j trace.Job) bool {
		_, each := j.Spread()
		return c.Nodes == nil && j.Slices > most || c.Nodes != nil && each > most
	})
	w.Only(nodes(c), c.Nodes == nil)
	first := max(len(w.Jobs)-mostReplayed, 0)
	w.Leave("submitted before the last "+plural(mostReplayed, "job"), first)
	w.Jobs = w.Jobs[first:]
	w.Left = slices.DeleteFunc(w.Left, func(l trace.Left) bool { return l.Reason == trace.NoGPU }) // other work
	w.Assumed, w.Several = 0, 0
	w.Settle()
}

// describe returns the text above the table of waits. jobs are the simulated jobs.
func (r replay) describe(jobs []trace.Job) string {
	text := fmt.Sprintf("Waits of %s in seconds. Only the first row was measured. The others are simulations on %s, "+
		"with backfill, which assume that the same jobs arrive at the same times, run as long on a whole GPU as on "+
		"their slices, and have all of these GPUs for themselves%s.", plural(len(jobs), "job"), r.Cluster,
		leftOut(r.LeftOut))
	asked, end := 0.0, 0.0
	for _, j := range jobs {
		asked += float64(max(j.Slices, 1)) * j.Duration
		end = max(end, j.Submit+j.Waited+j.Duration)
	}
	if has := float64(r.GPUs) * end; asked > has {
		text += fmt.Sprintf(" With whole GPUs, the jobs need %.0f%% of the time of all GPUs, so their queue grows "+
			"until the last submission: these waits show that the GPUs would not suffice, not how long users would "+
			"wait.",
			100*asked/has)
	}
	for _, p := range r.Policies {
		if p.Never != "" {
			text += fmt.Sprintf(" %s: %s.", p.Policy, p.Never)
		}
	}
	if len(jobs) < fewJobs {
		text += fmt.Sprintf(" With fewer than %d jobs, the waits depend mostly on chance.", fewJobs)
	}
	return text
}

// table returns the rows of the table of waits.
func (r replay) table() [][]string {
	table := [][]string{{"WAITS", "MEAN", "MEDIAN", "P95", "LONGEST"}}
	for _, p := range r.Policies {
		row := []string{p.Policy, "-", "-", "-", "-"}
		if p.Never == "" {
			row = []string{p.Policy, seconds0(p.MeanWait), seconds0(p.MedianWait), seconds0(p.P95Wait),
				seconds0(p.LongestWait)}
		}
		table = append(table, row)
	}
	return table
}
