package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"caelum/contrib/devcluster/oracle"
)

// patience is the maximum time that a job may wait without a correct explanation while the GPUs have room for its
// slices.
const patience = time.Minute

// waitWatch checks the reasons why jobs are waiting while no fault is active.
type waitWatch struct {
	*campaign
	// since maps each job to the time since which every snapshot has shown room for it.
	since map[string]time.Time
	// completing maps each node to the time since which every snapshot has shown it as COMPLETING.
	completing map[string]time.Time
}

// completes is the time after which a COMPLETING node suspends the check of all waits. If slurmctld misses the end of
// an epilog, it asks slurmd again after 95 s. Until then, slurmctld expects the node to become free soon, and backfill
// reserves other nodes for the first jobs in the queue.
const completes = 10 * time.Second

func (w *waitWatch) check(q queue, s snapshot) {
	now := time.Now()
	stays := w.completes(q, now)
	for _, j := range q.live() {
		if stays || !q.runnable(j, now) || !w.room(q, s, j) {
			delete(w.since, j.id)
			continue
		}
		if w.since[j.id].IsZero() {
			w.since[j.id] = now
		}
		if now.Sub(w.since[j.id]) < patience {
			continue
		}
		if why := w.explained(q, j); why != "" {
			w.time.add("%s: %s", j.id, drawn(s))
			w.found.add(
				&w.time,
				ruleWaits,
				"job %s (%s, %s) has waited for %v even though the GPUs have room: %s",
				j.id,
				j.name,
				j.reason,
				patience,
				why,
			)
		}
		delete(w.since, j.id)
	}
}

// completes reports whether any node has been COMPLETING for longer than the constant completes.
func (w *waitWatch) completes(q queue, now time.Time) (stays bool) {
	for name, l := range q.nodes {
		if !slices.Contains(l.States, "COMPLETING") {
			delete(w.completing, name)
		} else if w.completing[name].IsZero() {
			w.completing[name] = now
		} else if now.Sub(w.completing[name]) > completes {
			stays = true
		}
	}
	return stays
}

// room reports whether enough nodes have room for the job's slices in addition to the instances in use.
func (w *waitWatch) room(q queue, s snapshot, j queued) bool {
	fits := func(j queued) (on []string) {
		for name, n := range s.Nodes {
			snapshot := q.nodes[name]
			if j.required != "" && j.required != name || !up(snapshot) ||
				j.exclusive && (!idle(snapshot) || counted(snapshot)) {
				continue
			}
			if ok, err := n.fits(w.o, name, j.wants); err == nil && ok {
				on = append(on, name)
			}
		}
		return on
	}
	if j.hetSet == "" {
		return len(fits(j)) >= max(j.nodes, 1)
	}
	// The two components must be on different nodes.
	var sets [][]string
	for _, o := range q.jobs {
		if o.het == j.het {
			if !q.runnable(o, time.Now()) {
				return false
			}
			sets = append(sets, fits(o))
		}
	}
	if len(sets) != 2 {
		return false
	}
	return slices.ContainsFunc(sets[0], func(a string) bool {
		return slices.ContainsFunc(sets[1], func(b string) bool { return a != b })
	})
}

// fits reports whether the slices can be created on a node in addition to the instances in use.
func (n nodeState) fits(o options, node string, wants map[string]int) (bool, error) {
	if o.divides(node) {
		return n.fitsFractions(wants), nil
	}
	model, _, _ := strings.Cut(o.model, ",")
	gpus, err := oracle.NewGPUs(model, len(n.GPUs), o.features)
	if err != nil {
		return false, err
	}
	var used []oracle.Interval
	for g := range n.GPUs {
		for _, in := range n.GPUs[g].Instances {
			if n.used(g, in) {
				used = append(used, oracle.Interval{GPU: g, Start: in.Start, Size: in.Size, Profile: in.Profile})
			}
		}
	}
	return gpus.Pack(used, wants), nil
}

func up(l oracle.Snapshot) bool {
	for _, s := range l.States {
		switch strings.TrimRight(s, "*") {
		case "DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "INVALID_REG", "COMPLETING":
			return false
		}
	}
	return len(l.States) > 0
}

func idle(l oracle.Snapshot) bool { return slices.Contains(l.States, "IDLE") }

// counted reports whether slurmctld counts any gres/mig on a node as used. slurmctld 22.05.8 starts no --exclusive jobs
// on a node with a used count above 0, even if no job holds the slices (_verify_node_state in job_test.c of
// cons_common).
func counted(l oracle.Snapshot) bool {
	for _, n := range l.Used {
		if n > 0 {
			return true
		}
	}
	return false
}

// explanation holds the fields of `caelum explain --json` that the campaign uses.
type explanation struct {
	Verdict, Text string
	Before        uint32
}

// explained checks the explanation given for a job that is waiting even though the GPUs have room for its slices. The
// explanation is correct if it names a runnable job that is ahead in the queue and whose own wait is checked
// separately. explained returns "" for a correct explanation, and a description of the error otherwise.
func (w *waitWatch) explained(q queue, j queued) string {
	out, stderr, err := w.cluster.Exec(w.ctx, "root", "caelum", "explain", j.raw, "--json")
	if err != nil {
		return fmt.Sprintf("couldn't run caelum explain: %v: %s", err, lastLine(stderr))
	}
	var e explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return err.Error()
	}
	switch e.Verdict {
	case "started", "over":
		return ""
	case "behind", "on-offer":
		front := slices.IndexFunc(q.jobs, func(o queued) bool { return o.raw == fmt.Sprint(e.Before) })
		if front >= 0 && q.runnable(q.jobs[front], time.Now()) {
			return ""
		}
	}
	return fmt.Sprintf("explained as %s: %s", e.Verdict, e.Text)
}

// drawn returns a drawing of the instances on the GPUs.
func drawn(s snapshot) string {
	var all []string
	for name, n := range s.Nodes {
		for g := range n.GPUs {
			for _, in := range n.GPUs[g].Instances {
				word := "idle"
				if n.used(g, in) {
					word = "used"
				}
				all = append(all, fmt.Sprintf("%s GPU %d %s@%d %s", name, g, in.Profile, in.Start, word))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
