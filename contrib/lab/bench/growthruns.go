package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/contrib/lab/growtrace"
	"caelum/internal/core/mig"
)

// growthLease is the lease of one run, according to an agent's log.
type growthLease struct {
	profile    string
	start, end time.Time
	stopped    bool // the agent requeued the job before it would have run out of memory
}

// result computes the results from the jobs' submissions and the agents' logs.
func (r *growthRun) result() (result growtrace.Result, err error) {
	leases, err := r.leases()
	if err != nil {
		return result, err
	}
	of, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return result, err
	}
	result.Name = "devcluster, " + r.mode
	for _, j := range r.jobs {
		if err := j.addTo(&result, leases, of); err != nil {
			return result, fmt.Errorf("job %d (%s): %w", j.nth, strings.Join(j.ids, ", "), err)
		}
	}
	fmt.Printf("%s: latest submission %.1f s late, makespan %.0f s\n", r.mode, r.late.Seconds(),
		time.Since(r.began).Seconds())
	return result, nil
}

// addTo adds a job's runs to the results. leases contains the runs of each submission in order, by job id.
func (j *growthJob) addTo(r *growtrace.Result, leases map[string][]growthLease, of *mig.Model) error {
	short, end := false, time.Time{}
	for nth, id := range j.ids {
		runs := leases[id]
		if len(runs) == 0 {
			return fmt.Errorf("no agent granted a lease to %s", id)
		}
		for k, run := range runs {
			p, ok := of.ProfileIndex(run.profile)
			if !ok {
				return fmt.Errorf("unknown profile %s", run.profile)
			}
			profile := of.Profiles[p]
			lacks := j.Exceeds(profile.Memory()/j.PeakMiB) < j.Until
			used := run.end.Sub(run.start).Seconds() * float64(profile.Size) / float64(of.Grid)
			short, end = short || lacks, run.end
			r.Used += used
			switch {
			case k < len(runs)-1:
				r.Lost += used
				r.Requeues++
				if run.stopped && lacks {
					r.Stopped++
				}
				if !lacks {
					r.Needless++
				}
			case nth < len(j.ids)-1:
				r.Lost += used
				r.Failures++
				if !lacks {
					return fmt.Errorf("%s ran out of memory on %s, which is large enough", id, run.profile)
				}
			case lacks:
				return fmt.Errorf("%s ended on %s, which has too little memory", id, run.profile)
			}
		}
	}
	r.Jobs++
	turnaround := end.Sub(j.first).Seconds()
	r.Turnaround += turnaround
	if short {
		r.Short++
		r.ShortTurnaround += turnaround
	}
	return nil
}

// leases returns all leases according to the agents' logs, by job id, in order of their starts.
func (r *growthRun) leases() (map[string][]growthLease, error) {
	all := map[string][]growthLease{}
	for n := range growthNodes {
		log, err := r.Log(fmt.Sprint("agent-n", n+1))
		if err != nil {
			return nil, err
		}
		if err := addLeases(all, log); err != nil {
			return nil, fmt.Errorf("n%d: %w", n+1, err)
		}
	}
	for _, runs := range all {
		slices.SortFunc(runs, func(a, b growthLease) int { return a.start.Compare(b.start) })
	}
	return all, nil
}

// addLeases adds the leases in an agent's log.
func addLeases(all map[string][]growthLease, log string) error {
	open := map[int]*growthLease{}
	for line := range strings.Lines(log) {
		var event struct {
			Msg  string
			Time time.Time
			Job  int
		}
		if json.Unmarshal([]byte(line), &event) != nil {
			continue
		}
		lease := open[event.Job]
		switch {
		case strings.HasPrefix(event.Msg, "leased "):
			open[event.Job] = &growthLease{profile: strings.Fields(event.Msg)[1], start: event.Time}
		case lease != nil && event.Msg == growthStopped:
			lease.stopped = true
		case lease != nil && event.Msg == "released":
			lease.end = event.Time
			id := strconv.Itoa(event.Job)
			all[id] = append(all[id], *lease)
			delete(open, event.Job)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the agent has not released the slices of %d jobs", len(open))
	}
	return nil
}

// growthStopped is the message that the agent logs when it requeues a job before it fails.
const growthStopped = "requeued a job before its GPU memory would run out, with a larger profile"
