package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// carved checks that every run's lease consists of exactly the slices that slurmctld allocated, and that there are no
// other leases. A profile that the GPU model does not have must be replaced by the equivalent profile. If
// job_submit.lua chose the profile of a run, its single slice may be larger than the allocated one.
func (j *check) carved() {
	name := j.node.Name
	j.Leases += len(j.node.Leases)
	claimed := map[int]bool{}
	for _, s := range j.run.Starts {
		if s.Node != name {
			continue
		}
		until := j.next(s)
		got := map[string]int{}
		for k, l := range j.node.Leases {
			if l.Job == s.Job && l.From >= s.At && l.From < until {
				claimed[k] = true
				got[l.Profile]++
			}
		}
		want := map[string]int{}
		for p, n := range s.Profiles {
			if n > 0 {
				want[cmp.Or(j.gpus.Own(p), p)] += n
			}
		}
		switch {
		case maps.Equal(got, want):
		case s.Sized && j.larger(got, want):
			j.Larger++
		case len(got) > 0:
			j.add("carved", name, s.At, "slurmctld allocated %s to job %d, but the job leased %s",
				list(want), s.Job, list(got))
		default:
			j.refused(s, until, want)
		}
	}
	for k, l := range j.node.Leases {
		if !claimed[k] {
			j.add("carved", name, l.From, "job %d leased %v, but slurmctld had not started the job", l.Job,
				j.interval(l))
		}
	}
}

// larger reports whether got and want each contain a single slice, and the slice in got has at least as many units as
// the slice in want and more compute slices.
func (j *check) larger(got, want map[string]int) bool {
	if len(got) != 1 || len(want) != 1 {
		return false
	}
	for p, n := range got {
		for q, m := range want {
			a, b := j.gpus.kinds[p], j.gpus.kinds[q]
			return n == 1 && m == 1 && a.size >= b.size && a.compute > b.compute
		}
	}
	return false
}

// refused checks a run that has no lease even though slurmctld had allocated the slices in want to it. The run must
// have been ending: either the agent rejected the request for this reason, or the run ended before its prolog called
// the agent. The argument until is the start time of the job's next run.
func (j *check) refused(s Start, until int64, want map[string]int) {
	var reasons []string
	for _, r := range j.node.Refusals {
		if r.Job == s.Job && r.At >= s.At && r.At < until {
			reasons = append(reasons, r.Reason)
		}
	}
	stopped := strings.HasPrefix(s.State, "CANCELLED") || s.State == "REQUEUED"
	switch {
	case len(reasons) > 0 && !slices.ContainsFunc(reasons, func(r string) bool { return !ending(r) }),
		len(reasons) == 0 && stopped:
		j.Refused++
	case len(reasons) > 0:
		j.add("carved", s.Node, s.At, "slurmctld allocated %s to job %d, but the agent refused the job: %s",
			list(want), s.Job, strings.Join(reasons, "; "))
	default:
		j.add("carved", s.Node, s.At, "slurmctld allocated %s to job %d (%s), but the job has no lease",
			list(want), s.Job, s.State)
	}
}

// heldTwice checks that instances do not overlap, that leases do not overlap, and that each lease's instance existed
// throughout the lease.
func (j *check) heldTwice() {
	name := j.node.Name
	for a, x := range j.node.Instances {
		j.Created++
		if x.Died != Never {
			j.Destroyed++
		}
		for _, y := range j.node.Instances[a+1:] {
			if x.interval().overlaps(y.interval()) && x.Born < y.Died && y.Born < x.Died {
				j.add("overlap", name, y.Born, "%v was created while %v existed", y.interval(), x.interval())
			}
		}
	}
	for a, x := range j.node.Leases {
		for _, y := range j.node.Leases[a+1:] {
			if j.interval(x).overlaps(j.interval(y)) && x.From < y.To && y.From < x.To {
				j.add(
					"twice",
					name,
					y.From,
					"jobs %d and %d hold %v and %v",
					x.Job,
					y.Job,
					j.interval(x),
					j.interval(y),
				)
			}
		}
		if !slices.ContainsFunc(j.node.Instances, func(in Instance) bool {
			return (in.offers(x) || in.Profile == fullProfile) &&
				in.interval() == j.interval(x) && in.Born < x.From &&
				(in.Died > x.To || x.To == Never && in.Died == Never)
		}) {
			j.add(
				"instance",
				name,
				x.From,
				"job %d holds %v (UUID %s), which did not exist throughout the lease",
				x.Job,
				j.interval(x),
				x.UUID,
			)
		}
	}
}

func (in Instance) interval() Interval { return Interval{in.GPU, in.Start, in.Size, in.Profile} }

// processes checks that a process uses an instance only while exactly one job holds it, and that the environment of a
// job contains only the slices of its lease.
func (j *check) processes() {
	name := j.node.Name
	j.Processes += len(j.node.Processes)
	for _, p := range j.node.Processes {
		var holders []string
		for _, l := range j.node.Leases {
			// The emulator logs the end of a killed process with a delay.
			if l.UUID == p.UUID && l.GPU == p.GPU && l.From <= p.From && (p.To <= l.To || p.Killed && p.From < l.To) {
				holders = append(holders, fmt.Sprint(l.Job))
			}
		}
		if len(holders) != 1 {
			j.add(
				"process",
				name,
				p.From,
				"process %d used %s on GPU %d at %d; jobs that held the slice throughout: [%s]",
				p.PID,
				p.UUID,
				p.GPU,
				p.Start,
				strings.Join(holders, " "),
			)
		}
	}
	for _, s := range j.run.Seen {
		if s.Node == name &&
			!slices.ContainsFunc(j.node.Leases, func(l Lease) bool { return l.Job == s.Job && l.UUID == s.UUID }) {
			j.add("seen", name, 0,
				"job %d found %s in its environment, but the slice is not part of its lease",
				s.Job, s.UUID)
		}
	}
}

// accounted checks that the agent's final status shows exactly the instances on the GPUs, all of them idle.
func (j *check) accounted() {
	if j.node.Final == nil {
		return
	}
	name := j.node.Name
	known := map[Interval]bool{}
	for _, f := range j.node.Final {
		in := Interval{f.GPU, f.Start, j.gpus.kinds[f.Profile].size, f.Profile}
		known[in] = true
		if f.State != "idle" {
			j.add("end", name, 0, "%v is %s after all jobs have ended", in, f.State)
		}
	}
	for _, in := range j.node.Instances {
		if in.Died != Never {
			continue
		}
		if !known[in.interval()] {
			j.add("end", name, in.Born, "%v is on the GPU, but not in the agent's status", in.interval())
		}
		delete(known, in.interval())
	}
	for in := range known {
		j.add("end", name, 0, "the agent's status shows %v, which is not on the GPU", in)
	}
	for _, l := range j.node.Leases {
		if l.To == Never {
			j.add("end", name, l.From, "job %d still held %v after all jobs had ended", l.Job, j.interval(l))
		}
	}
}
