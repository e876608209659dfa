package oracle

import (
	"slices"
	"strings"
	"time"
)

// judge is the check of one node.
type judge struct {
	*Report
	run  *Run
	node Node
	gpus *GPUs
}

// closedType is the filler of gres/mig.
const closedType = "closed"

// offered checks that all of an offer can be carved at once beside what is held, as it stood from t0 to t1: slices that
// are leased or in use stay where they are, and each run that slurmctld has started and the agent has not leased yet
// must find room too. A run that started between t0 and t1 may be in the offer or already out of it, so it is taken to
// be in it.
func (j *judge) offered(t0, t1 int64, free map[string]int) (stand []Interval, want map[string]int, ok bool) {
	want = map[string]int{}
	for p, n := range free {
		if p != closedType && n > 0 {
			want[p] = n
		}
	}
	for _, l := range j.node.Leases {
		if l.From <= t1 && l.To > t1 {
			stand = append(stand, j.interval(l))
		}
	}
	for _, p := range j.node.Processes {
		in := Interval{p.GPU, p.Start, p.Size, p.UUID}
		if p.From <= t1 && p.To > t1 && !p.Killed && !slices.ContainsFunc(stand, in.overlaps) {
			stand = append(stand, in)
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
	return stand, want, j.gpus.Pack(stand, want)
}

// answered is when a run was leased its first slice, and when it was refused; Never if not.
func (j *judge) answered(s Start) (leased, refused int64) {
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

// next is when the job's next run started, here or elsewhere.
func (j *judge) next(s Start) int64 {
	next := int64(Never)
	for _, o := range j.run.Starts {
		if o.Job == s.Job && o.At > s.At {
			next = min(next, o.At)
		}
	}
	return next
}

func (j *judge) interval(l Lease) Interval {
	return Interval{l.GPU, l.Start, j.gpus.kinds[l.Profile].size, l.Profile}
}

// writes: in every write the total is the same, types exist, and what is free can be carved whatever slurmctld starts
// of it; what is written to lower raises nothing.
func (j *judge) writes() {
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
				j.add("profile", name, w.At, "%s:%d is written, and the board has no such profile", p, total)
			}
			free[p] = max(total-w.Used[p], 0)
		}
		if n < 0 {
			n = sum
		}
		if sum != n {
			j.add("total", name, w.At, "the total is %d, it was %d", sum, n)
		}
		switch w.Phase {
		case "lower":
			j.Lowered++
			for p, total := range w.Total {
				if p != closedType && before != nil && total > before[p] {
					j.add("phase", name, w.At, "%s rises from %d to %d in a write that lowers", p, before[p], total)
				}
			}
		case "raise":
			j.Raised++
		default:
			j.add("phase", name, w.At, "a write of the phase %q", w.Phase)
		}
		before = w.Total
		waits := j.Waits
		if stand, want, ok := j.offered(w.Read-int64(time.Millisecond), w.At, free); !ok {
			j.add(
				"offer",
				name,
				w.At,
				"%s writes %s free with %d runs not leased yet: %s cannot be carved beside %v",
				w.Phase,
				list(free),
				j.Waits-waits,
				list(want),
				stand,
			)
		}
	}
}

// looks: at every look from outside, what slurmctld could start at that moment can be carved.
func (j *judge) snapshots() {
	waits := j.Waits // counted over writes only
	defer func() { j.Waits = waits }()
	for _, l := range j.run.Looks {
		if l.Node != j.node.Name {
			continue
		}
		j.Looks++
		if l.shut() {
			j.Shut++
			continue
		}
		free := map[string]int{}
		for p, total := range l.Total {
			free[p] = max(total-l.Used[p], 0)
		}
		if stand, want, ok := j.offeredWithin(l.From-int64(time.Millisecond), l.To, free); !ok {
			j.add(
				"look",
				j.node.Name,
				l.From,
				"slurmctld has %s free: with the runs not leased yet %s cannot be carved beside %v",
				list(free),
				list(want),
				stand,
			)
		}
	}
}

// offeredWithin checks an offer that stood at some moment from one time to another, nobody knows which: there must be
// one at which all of it could be carved. On a busy machine an answer of slurmctld's may be so old when it is there
// that a pass has raised something since, and a job has started on that.
func (j *judge) offeredWithin(from, to int64, free map[string]int) (stand []Interval, want map[string]int, ok bool) {
	if stand, want, ok = j.offered(from, to, free); ok {
		return stand, want, true
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
			return stand, want, true
		}
	}
	return stand, want, false
}

// logged: slurmctld and the agent tell of the same writes, so that no write escapes the other checks. Closing
// everything is the business of `caelumd close`, which logs nothing.
func (j *judge) logged() {
	name := j.node.Name
	missing := slices.Clone(j.node.Writes)
	for _, s := range j.run.Sets {
		if s.Node != name {
			continue
		}
		k := slices.IndexFunc(missing, func(w Write) bool {
			// slurmctld cuts its times to the millisecond.
			return w.Gres == s.Gres && w.At-int64(time.Millisecond) < s.At && s.At <= w.Done
		})
		if k >= 0 {
			missing = slices.Delete(missing, k, k+1)
			continue
		}
		open := 0
		for p, n := range slicesOf(s.Gres) {
			if p != closedType {
				open += n
			}
		}
		if open > 0 {
			j.add("logged", name, s.At, "slurmctld was written %s, and no agent says so", s.Gres)
		}
	}
	for _, w := range missing {
		if w.Failed {
			continue
		}
		j.add("logged", name, w.At, "the agent wrote %s, and slurmctld does not say so", w.Gres)
	}
}

// ending are the refusals that are no failing: the run was over before its prolog had asked.
func ending(reason string) bool {
	return strings.HasPrefix(reason, "the job is ending") ||
		strings.HasPrefix(reason, "slurmctld does not know this job any more")
}
