package offer

import (
	"iter"
	"slices"

	"caelum/internal/place"
)

// Job is a waiting job.
type Job struct {
	ID            uint32
	Wants         []Want // the slices that the job needs on each of its nodes
	Nodes         int    // the number of nodes; 0 means 1
	EligibleNodes []int  // the nodes on which the job can run; nil means all nodes
	// DeferredNodes contains the eligible nodes on which the job cannot start now because it lacks resources other than
	// slices. If possible, the job is placed on other nodes.
	DeferredNodes []int
	// NoOfferNodes contains those DeferredNodes on which no slices are offered for the job while it cannot start there.
	NoOfferNodes []int
	// ReadyAt contains the remaining DeferredNodes, each with the time in seconds at which the missing resources are
	// expected to be free. Slices are reserved for the job on these nodes, and are lent to jobs that end before that
	// time. A node without an entry may have free resources at any time.
	ReadyAt map[int]float64
	// FreedAt contains DeferredNodes, each with the time in seconds at which jobs with slices are expected to have
	// released the missing resources. No spots are reserved for the job on a deferred node without an entry.
	FreedAt map[int]float64
	// A plan places at most one of the jobs with the same SingletonKey. 0 means no limit.
	SingletonKey uint64
	RunTime      float64 // the expected run time in seconds, or +Inf if unknown
	// Learned is true if RunTime follows from earlier runs, and false if it is a time limit, which may be far too long.
	Learned   bool
	TimeLimit float64 // the time limit in seconds, or +Inf if the job has none
	// Het identifies the het job to which a component belongs, and is 0 for other jobs. The components of a het job are
	// adjacent in the queue and start only together. They start on different nodes, because only slurmctld's backfill
	// starts components, and backfill reserves the nodes of each component (backfill.c, 22.05.8). A component may
	// request no slices. OutsideCluster means that such a component can start on a node outside the cluster if other
	// components use all of its eligible nodes.
	Het            uint32
	OutsideCluster bool
}

// Want is a number of slices of one profile.
type Want struct {
	Profile string
	Count   int
	// Alternatives contains the equivalent profiles on other GPU models. If there is no room for Profile, an
	// alternative is placed and offered under the name in Profile.
	Alternatives []string
	// Sizes contains the larger profiles that the job may get instead of Profile. They are offered under the name in
	// Profile. Only a job that wants a single slice has Sizes.
	Sizes []Size
}

// Allows reports whether a job with this want may get a slice of a profile.
func (w Want) Allows(profile string) bool {
	return w.Profile == profile || slices.Contains(w.Alternatives, profile) ||
		slices.ContainsFunc(w.Sizes, func(s Size) bool { return s.Profile == profile })
}

// Components returns the jobs that start together with the k-th job, including that job, and the index of the first of
// these jobs.
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

// RequestedAs returns the profile name under which a job with these wants requested a slice that was placed as profile.
// slurmctld counts the slice under this name.
func RequestedAs(wants []Want, profile string) string {
	for _, w := range wants {
		if w.Profile == profile {
			return profile
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

// request converts the needs of a job to the input of a policy.
func (j *Job) request() place.Request {
	return place.Request{Profile: j.Wants[0].Profile, Duration: j.RunTime}
}

// Alike reports whether two jobs would get the same spots on every node. This is the case if they need the same slices
// and have the same run times.
func (j *Job) Alike(o *Job) bool {
	same := func(a, b Want) bool {
		return a.Profile == b.Profile && a.Count == b.Count && slices.Equal(a.Alternatives, b.Alternatives) &&
			slices.Equal(a.Sizes, b.Sizes)
	}
	return j.RunTime == o.RunTime && j.TimeLimit == o.TimeLimit && slices.EqualFunc(j.Wants, o.Wants, same)
}

// onNode returns the part of a job that runs on one node, as a separate job.
func (j *Job) onNode(node int) *Job {
	one := *j
	one.EligibleNodes, one.DeferredNodes, one.Nodes = []int{node}, nil, 1
	return &one
}

// CanStartOn reports whether a job could start on a node now if it had slices there.
func (j *Job) CanStartOn(node int) bool {
	return (j.EligibleNodes == nil || slices.Contains(j.EligibleNodes, node)) && !slices.Contains(j.DeferredNodes, node)
}
