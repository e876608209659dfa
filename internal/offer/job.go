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
	// DeferredNodes contains the eligible nodes on which the job cannot start now because it
	// lacks resources other than slices. The job is placed on other nodes if possible.
	DeferredNodes []int
	// NoOfferNodes contains the nodes of DeferredNodes on which no slices are offered for the
	// job until it can start.
	NoOfferNodes []int
	// ReadyAt maps the other nodes of DeferredNodes to the time, in seconds, at which the resources that the job lacks
	// are expected to be free. Until that time, the slices that are kept for the job are lent to jobs that end earlier.
	// If a node has no entry, the resources may become free at any time.
	ReadyAt map[int]float64
	// FreedAt maps nodes of DeferredNodes to the time, in seconds, at which jobs with slices are expected to release
	// the resources that the job lacks. On the other nodes of DeferredNodes, no spots are reserved for the job.
	FreedAt map[int]float64
	// SingletonKey limits which jobs are placed together: a plan places at most one job per key. 0 means no limit.
	SingletonKey uint64
	RunTime      float64 // the expected run time, in seconds; +Inf: unknown
	TimeLimit    float64 // the time limit, in seconds; +Inf: none
	// Het is the same for all components of a het job, which are adjacent in the queue. It is 0 for a job that is
	// not a component. The components start only together. No two of them start on the same node: only slurmctld's
	// backfill starts components, and it reserves the nodes of each component (backfill.c, 22.05.8). A component
	// may request nodes without slices. OutsideCluster means that such a component can start on a node outside the
	// cluster if none of its nodes in the cluster is left.
	Het            uint32
	OutsideCluster bool
}

// Want is a number of slices of one profile.
type Want struct {
	Profile string
	Count   int
	// Alternatives contains the equivalent profiles on other GPU models. If there is no room
	// for Profile, one of them is used and offered under the name in Profile.
	Alternatives []string
	// Sizes contains the larger profiles that the job may get instead of Profile. They are offered under the name in
	// Profile. Only a job that wants a single slice has Sizes.
	Sizes []Size
}

// Components returns the jobs that start together with the k-th job, including that job. It also
// returns the index of the first of these jobs.
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

// byStart yields the groups of jobs that start together, each with the index of its first job.
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

// RequestedAs returns the profile name that a job with these wants requested for a slice that was
// placed as profile. slurmctld counts the slice under this name.
func RequestedAs(wants []Want, profile string) string {
	for _, w := range wants {
		if w.Profile == profile {
			return profile
		}
	}
	for _, w := range wants {
		isSize := func(s Size) bool { return s.Profile == profile }
		if slices.Contains(w.Alternatives, profile) || slices.ContainsFunc(w.Sizes, isSize) {
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

// request converts a job to the input of a policy.
func (j *Job) request() place.Request {
	return place.Request{Profile: j.Wants[0].Profile, Duration: j.RunTime}
}

// Alike reports whether two jobs would get the same spots on every node, because they want the same slices and have the
// same run times.
func (j *Job) Alike(o *Job) bool {
	same := func(a, b Want) bool {
		return a.Profile == b.Profile && a.Count == b.Count && slices.Equal(a.Alternatives, b.Alternatives) &&
			slices.Equal(a.Sizes, b.Sizes)
	}
	return j.RunTime == o.RunTime && j.TimeLimit == o.TimeLimit && slices.EqualFunc(j.Wants, o.Wants, same)
}

// onNode returns a job's share on one of its nodes as a separate job.
func (j *Job) onNode(node int) *Job {
	one := *j
	one.EligibleNodes, one.DeferredNodes, one.Nodes = []int{node}, nil, 1
	return &one
}

// CanStartOn reports whether a job could start on a node now if it had its slices there.
func (j *Job) CanStartOn(node int) bool {
	return (j.EligibleNodes == nil || slices.Contains(j.EligibleNodes, node)) && !slices.Contains(j.DeferredNodes, node)
}
