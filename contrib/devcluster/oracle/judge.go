package oracle

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// check holds the state of the checks on one node.
type check struct {
	*Report
	run  *Run
	node Node
	gpus *GPUs
}

// closedType is the gres/mig type that makes up the rest of the node's total.
const closedType = "closed"

// offered checks an offer that was valid from t0 to t1. The agent must have been able to create all of the offered
// slices at the same time, without moving any slices that were leased or in use. The GPUs must also have had room for
// each run that slurmctld had started but that had no lease yet. The record does not show whether the offer includes
// the slices of a run that started between t0 and t1, so the check assumes that it does.
func (j *check) offered(t0, t1 int64, free map[string]int) (present []Interval, want map[string]int, ok bool) {
	want = map[string]int{}
	for p, n := range free {
		if p != closedType && n > 0 {
			want[p] = n
		}
	}
	for _, l := range j.node.Leases {
		if l.From <= t1 && l.To > t1 {
			present = append(present, j.interval(l))
		}
	}
	for _, p := range j.node.Processes {
		in := Interval{p.GPU, p.Start, p.Size, p.UUID}
		if p.From <= t1 && p.To > t1 && !p.Killed && !slices.ContainsFunc(present, in.overlaps) {
			present = append(present, in)
		}
	}
	for _, s := range j.run.Starts {
		young := s.At >= t0
		if s.Node != j.node.Name || s.At > t1 || s.End <= t0 && !young {
			continue
		}
		leased, refused := j.answered(s)
		if young {
			for p, n := range s.Profiles {
				want[p] -= min(n, want[p])
			}
		}
		if leased > t1 && refused > t1 && s.End > t1 {
			j.Waits++
			for p, n := range s.Profiles {
				want[p] += n
			}
		}
	}
	return present, want, j.gpus.Pack(present, want)
}

// answered returns the time at which a run was granted its lease and the time at which the agent rejected its request.
// The time of an event that did not happen is Never.
func (j *check) answered(s Start) (leased, refused int64) {
	leased, refused = Never, Never
	until := j.next(s)
	for _, l := range j.node.Leases {
		if l.Job == s.Job && l.From >= s.At && l.From < until {
			leased = min(leased, l.From)
		}
	}
	for _, r := range j.node.Refusals {
		if r.Job == s.Job && r.At >= s.At && r.At < until {
			refused = min(refused, r.At)
		}
	}
	return leased, refused
}

// next returns the start time of the job's next run on any node, or Never.
func (j *check) next(s Start) int64 {
	next := int64(Never)
	for _, o := range j.run.Starts {
		if o.Job == s.Job && o.At > s.At {
			next = min(next, o.At)
		}
	}
	return next
}

func (j *check) interval(l Lease) Interval {
	return Interval{l.GPU, l.Start, j.gpus.kinds[l.Profile].size, l.Profile}
}

// writes checks that all writes have the same total and contain only existing types, that no write in the "lower" phase
// raises a count, and that the agent can create every combination of slices that slurmctld can allocate after a write.
func (j *check) writes() {
	name, n := j.node.Name, -1
	j.GaveUp += j.node.GaveUp
	var before map[string]int
	for _, w := range j.node.Writes {
		j.Writes++
		sum := 0
		free := map[string]int{}
		for p, total := range w.Total {
			sum += total
			if p != closedType && total > 0 && !j.gpus.Has(p) {
				j.add("profile", name, w.At, "the agent wrote %s:%d, but the GPU model does not have this profile",
					p, total)
			}
			free[p] = max(total-w.Used[p], 0)
		}
		if n < 0 {
			n = sum
		}
		if sum != n {
			j.add("total", name, w.At, "the total is %d, but the total of the previous write was %d", sum, n)
		}
		switch w.Phase {
		case "lower":
			j.Lowered++
			for p, total := range w.Total {
				if p != closedType && before != nil && total > before[p] {
					j.add("phase", name, w.At, "the count of %s rises from %d to %d in a write of the lower phase",
						p, before[p], total)
				}
			}
		case "raise":
			j.Raised++
		default:
			j.add("phase", name, w.At, "a write has an unknown phase: %q", w.Phase)
		}
		before = w.Total
		waits := j.Waits
		if present, want, ok := j.offered(w.Read-int64(time.Millisecond), w.At, free); !ok {
			j.add(
				"offer",
				name,
				w.At,
				"a write in the %s phase offers %s while %d runs have no lease yet: the agent cannot carve %s in "+
					"addition to %v",
				w.Phase,
				list(free),
				j.Waits-waits,
				list(want),
				present,
			)
		}
	}
}

// snapshots checks that, in each snapshot, the agent was able to create all slices that slurmctld considered free.
func (j *check) snapshots() {
	waits := j.Waits // snapshots must not change j.Waits
	defer func() { j.Waits = waits }()
	for _, l := range j.run.Snapshots {
		if l.Node != j.node.Name {
			continue
		}
		j.Snapshots++
		if l.shut() {
			j.Shut++
			continue
		}
		free := map[string]int{}
		for p, total := range l.Total {
			free[p] = max(total-l.Used[p], 0)
		}
		if present, want, ok := j.offeredWithin(l.From-int64(time.Millisecond), l.To, free); !ok {
			j.add(
				"snapshot",
				j.node.Name,
				l.From,
				"slurmctld has %s free: with the runs that have no lease yet, the agent cannot carve %s in addition "+
					"to %v",
				list(free),
				list(want),
				present,
			)
		}
	}
}

// offeredWithin checks an offer that was valid at an unknown time between from and to. It returns false only if the
// agent could not have created the offer's slices at any time in this interval. On a busy machine, an answer from
// slurmctld can be late: by the time it arrives, the agent may have raised the offer, and a job may have started on the
// new slices.
func (j *check) offeredWithin(from, to int64, free map[string]int) (present []Interval, want map[string]int, ok bool) {
	if present, want, ok = j.offered(from, to, free); ok {
		return present, want, true
	}
	moments := []int64{from, to}
	for _, s := range j.run.Starts {
		moments = append(moments, s.At-1, s.At)
	}
	for _, l := range j.node.Leases {
		moments = append(moments, l.From, l.To)
	}
	for _, at := range moments {
		if at < from || at > to {
			continue
		}
		if _, _, ok := j.offered(at, at, free); ok {
			return present, want, true
		}
	}
	return present, want, false
}

// logged checks that slurmctld and the node's agent logged the same writes of counts, so that the other checks cover
// them all. Writes that close all types are exempt from this check, because they may come from `caelumd close`, which
// does not log its writes. slurmctld does not log a write of Extra alone, but its last logged counts must be those of
// the write. This does not apply to counts that close all types, because slurmctld reads such counts from slurm.conf
// when it restarts.
func (j *check) logged() {
	name := j.node.Name
	missing := slices.Clone(j.node.Writes)
	for _, s := range j.run.Sets {
		if s.Node != name {
			continue
		}
		k := slices.IndexFunc(missing, func(w Write) bool {
			// slurmctld truncates its times to milliseconds.
			return !w.ExtraOnly && w.Gres == s.Gres && w.At-int64(time.Millisecond) < s.At && s.At <= w.Done
		})
		if k >= 0 {
			missing = slices.Delete(missing, k, k+1)
			continue
		}
		if open(slicesOf(s.Gres)) {
			j.add("logged", name, s.At, "slurmctld logged a write of %s, but no agent logged it", s.Gres)
		}
	}
	for _, w := range missing {
		switch {
		case w.ExtraOnly:
			if last := j.lastSet(w.At); last != nil && open(w.Total) && !maps.Equal(slicesOf(last.Gres), w.Total) {
				j.add("logged", name, w.At, "the agent wrote only Extra with the counts %s, but slurmctld had %s",
					w.Gres, last.Gres)
			}
		case !w.Failed:
			j.add("logged", name, w.At, "the agent logged a write of %s, but slurmctld did not log it", w.Gres)
		}
	}
}

// open reports whether the counts contain slices of a type other than `closed`.
func open(counts map[string]int) bool {
	for p, n := range counts {
		if p != closedType && n > 0 {
			return true
		}
	}
	return false
}

// lastSet returns the last change to the node's counts that slurmctld logged before the given time, or nil if there is
// none.
func (j *check) lastSet(at int64) *Set {
	var last *Set
	for k, s := range j.run.Sets {
		if s.Node == j.node.Name && s.At <= at && (last == nil || s.At >= last.At) {
			last = &j.run.Sets[k]
		}
	}
	return last
}

// excesses checks that the agent found no excess, because slurmctld's used counts were correct throughout the run. An
// agent that incorrectly finds an excess raises its totals, and might not lower them before a job starts.
func (j *check) excesses() {
	for _, e := range j.node.Excesses {
		j.add("excess", j.node.Name, e.At, "the agent found an excess of %s", list(e.Counts))
	}
}

// ending reports whether the agent rejected the request for a valid reason, namely that the run had ended before its
// prolog requested a lease.
func ending(reason string) bool {
	return strings.HasPrefix(reason, "the job is ending") ||
		strings.HasPrefix(reason, "slurmctld no longer knows this job")
}
