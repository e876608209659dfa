package offer

import (
	"cmp"
	"iter"
	"slices"

	"caelum/internal/core/mig"
)

// Job holds the requirements of a waiting job.
type Job struct {
	ID            uint32
	User          uint32 // the user's id; a plan divides the number of urgent jobs among the users
	Wants         []Want // the slices that the job needs on each of its nodes
	Nodes         int    // the number of nodes; 0 means 1
	EligibleNodes []int  // the nodes on which the job can run; nil means all nodes
	// DeferredNodes holds the eligible nodes on which the job cannot start now because it lacks resources other than
	// slices. If possible, a plan places it on other nodes.
	DeferredNodes []int
	// NoOfferNodes holds the DeferredNodes that offer no slices for the job while it cannot start.
	NoOfferNodes []int
	// ReadyAt maps the other DeferredNodes to the time, in seconds, at which the missing resources are expected to be
	// free. A plan reserves slices for the job on these nodes and lends them to jobs that end before that time. On a
	// node without an entry, the missing resources may become free at any time.
	ReadyAt map[int]float64
	// FreedAt maps DeferredNodes to the time, in seconds, at which jobs that hold slices are expected to have released
	// the missing resources. On a deferred node without an entry, a plan does not reserve spots for the job.
	FreedAt map[int]float64
	// A plan places at most one of the jobs with the same SingletonKey, unless the key is 0.
	SingletonKey uint64
	RunTime      float64 // the expected run time in seconds, or +Inf if unknown
	// Learned is true if RunTime was learned from earlier runs. Otherwise, it is the time limit, which may be far too
	// long.
	Learned   bool
	TimeLimit float64 // the time limit in seconds, or +Inf if it is not set
	Waited    float64 // the time, in seconds, since the job became eligible
	// Deadline is the time in seconds by which the job must end, or 0 if the job has no deadline. LatestStart is the
	// latest time at which slurmctld would start a job with a deadline.
	Deadline, LatestStart float64
	// First is true if other jobs are being stopped to make room for the job. Such a job precedes all other jobs and is
	// not subject to the limit on full GPUs, because otherwise the other jobs would have been stopped unnecessarily.
	First bool
	// Priority is the same for two jobs if slurmctld orders them only by their submission times. It is 0 if no other
	// job has the same priority.
	Priority uint64
	// Het identifies the het job to which a component belongs, and is 0 for other jobs. A het job's components are
	// adjacent in the queue and start only together and on different nodes. Only slurmctld's backfill starts
	// components, and it reserves nodes for each component (backfill.c, 22.05.8). A component does not have to request
	// slices. OutsideCluster means that a component without slices can start on a node outside the cluster if other
	// components use all of its eligible nodes.
	Het            uint32
	OutsideCluster bool
}

// Want describes a number of slices of a single profile.
type Want struct {
	// Profile is the requested profile, under whose name slurmctld counts the slices.
	Profile string
	Count   int
	// Grown is the profile that the job needs instead of Profile, or empty. An earlier run showed that Profile is too
	// small, but the job's request still names it, so a plan offers a slice of Grown under the name Profile.
	Grown string
	// Alternatives lists the equivalent profiles on other GPU models. If no GPU has room for the required profile, a
	// plan places one of these instead and offers it under the name Profile.
	Alternatives []string
	// Sizes lists the larger profiles that the job may be given instead of the required one, also under the name
	// Profile. Only a job that needs a single slice has Sizes.
	Sizes []Size
}

// Needed returns the profile that the job requires: Grown or, if Grown is empty, Profile.
func (w Want) Needed() string { return cmp.Or(w.Grown, w.Profile) }

// profiles returns the required profile and its alternatives.
func (w Want) profiles() []string { return append([]string{w.Needed()}, w.Alternatives...) }

// Allows reports whether a slice of the profile satisfies the want.
func (w Want) Allows(profile string) bool {
	return slices.Contains(w.profiles(), profile) ||
		slices.ContainsFunc(w.Sizes, func(s Size) bool { return s.Profile == profile })
}

// Components returns the jobs that start together with the k-th job, including that job itself. first is the index of
// the first such job.
func Components(jobs []*Job, k int) (first int, all []*Job) {
	first, next := k, k+1
	if het := jobs[k].Het; het != 0 {
		for first > 0 && jobs[first-1].Het == het {
			first--
		}
		for next < len(jobs) && jobs[next].Het == het {
			next++
		}
	}
	return first, jobs[first:next]
}

// byStart yields each group of jobs that start together, and the index of the group's first job.
func byStart(jobs []*Job) iter.Seq2[int, []*Job] {
	return func(yield func(int, []*Job) bool) {
		for k := 0; k < len(jobs); {
			_, group := Components(jobs, k)
			if !yield(k, group) {
				return
			}
			k += len(group)
		}
	}
}

// RequestedAs returns the requested profile name for a slice of the given profile that was placed for a job with these
// wants. slurmctld counts the slice under that name.
func RequestedAs(wants []Want, profile string) string {
	for _, w := range wants {
		if w.Needed() == profile {
			return w.Profile
		}
	}
	for _, w := range wants {
		if w.Allows(profile) {
			return w.Profile
		}
	}
	return profile
}

// nodes returns the number of nodes that the job needs.
func (j *Job) nodes() int { return max(j.Nodes, 1) }

func (j *Job) slices() (n int) {
	for _, w := range j.Wants {
		n += w.Count
	}
	return n * j.nodes()
}

// severalFractions reports whether the job needs a fraction and another slice on the same node. No node can provide
// them, because two fractions of a GPU would be the same CUDA device.
func (j *Job) severalFractions() bool {
	fraction := func(w Want) bool { return mig.IsFraction(w.Needed()) }
	return j.slices() > j.nodes() && slices.ContainsFunc(j.Wants, fraction)
}

// Alike reports whether two jobs need equal slices and have equal run times. On any given node, Find finds the same
// spots for both jobs.
func (j *Job) Alike(o *Job) bool {
	same := func(a, b Want) bool {
		return a.Profile == b.Profile && a.Grown == b.Grown && a.Count == b.Count &&
			slices.Equal(a.Alternatives, b.Alternatives) && slices.Equal(a.Sizes, b.Sizes)
	}
	return j.RunTime == o.RunTime && j.TimeLimit == o.TimeLimit && j.Deadline == o.Deadline &&
		j.LatestStart == o.LatestStart && slices.EqualFunc(j.Wants, o.Wants, same)
}

// onNode returns, as a separate job, the part of the job that runs on the given node.
func (j *Job) onNode(node int) *Job {
	one := *j
	one.EligibleNodes, one.DeferredNodes, one.Nodes = []int{node}, nil, 1
	return &one
}

// CanStartOn reports whether a job that has slices on a node could start there now.
func (j *Job) CanStartOn(node int) bool {
	return (j.EligibleNodes == nil || slices.Contains(j.EligibleNodes, node)) && !slices.Contains(j.DeferredNodes, node)
}
