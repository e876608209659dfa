package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Unsuitable is the error for a job that must restart because it cannot be given its slices in this run. Either
// slurmctld has not counted the slices, so that limits and billing would not include them, or no GPU on the node has a
// slice that is large enough for the job after its growth. The field missing lists the slices as profile:count.
type Unsuitable struct{ Reason, Missing string }

func (u *Unsuitable) Error() string { return u.Reason }

// Wants returns the slices to carve for the job on this node. These are the allocated slices or, if slurmctld has
// allocated the whole node to the job, the requested slices. slurmctld counts all of these slices as used by the job.
// Every error concerns only the job: it is an *unsuitable, or describes the mistake in the request. If slots is 0, the
// number of slots is not checked.
func (n *Node) Wants(job slurm.Job, slots int) (wants []offer.Want, err error) {
	here := job.Allocated[n.name]
	allocated, requested := here.Named("mig").Positive(), job.PerNode.Named("mig").Positive()
	wholeNode := slices.ContainsFunc(allocated, func(g slurm.GRES) bool { return g.Type == slurm.ClosedType })
	untyped := slices.ContainsFunc(requested, func(g slurm.GRES) bool { return g.Type == "" })
	granted := allocated
	switch {
	case untyped:
		// The request includes gres/mig without a profile. Because slurmctld checks limits only against the request,
		// and chooses a profile afterwards (22.05.8), limits on profiles would not apply to the job.
		return nil, fmt.Errorf(
			"the job requests gres/mig without a profile, so slurmctld has counted no slice of any profile; "+
				"name a profile (--gres=mig:%s:1)",
			n.SizeOf(job),
		)
	case wholeNode:
		// slurmctld allocates every GRES of the node to an --exclusive job, including the `closed` type. The agent
		// carves only the requested slices.
		granted = requested
		if len(requested) == 0 && asksForGPU(job) {
			return nil, n.noSize(job, max(job.GPUsPerNode(), 1))
		}
	case len(allocated) == 0 && here.Total("gpu") > 0:
		// The job requests GPU slots but no profile: either job_submit.lua did not process it, or an update removed
		// the slices from the request.
		return nil, n.noSize(job, cmp.Or(job.GPUsPerNode(), here.Total("gpu")))
	}
	if !allocated.Covers(granted) {
		return nil, &Unsuitable{
			"slurmctld has not counted the requested slices " + granted.String() + " for the job",
			granted.String(),
		}
	}
	total := 0
	for _, g := range granted {
		want := offer.Want{Profile: g.Type, Count: g.Count, Grown: tags.Needed(job)}
		if !slices.Contains(n.Profiles, want.Needed()) {
			want.Alternatives = n.EquivalentProfiles(want.Needed())
			switch {
			case want.Alternatives != nil:
			case want.Grown != "":
				return nil, n.tooSmall(want)
			default:
				return nil, fmt.Errorf("no GPU on %s has the profile %q or an equivalent profile; the node has %s",
					n.name, g.Type, strings.Join(n.Profiles, ", "))
			}
		}
		want.Sizes = plan.Sizes(job, n.kinds())
		wants = append(wants, want)
		total += g.Count
	}
	return wants, n.fitSlots(job, wants, total, slots)
}

// fitSlots returns an error if a job has more slices than GPU slots on this node. If the job's nodes have different
// numbers of GPUs, slurmctld counts as many slices on each of them as on the one with the most GPUs, because it counts
// gres/mig only per node. In this case, fitSlots reduces the number of slices to that of the slots.
func (n *Node) fitSlots(job slurm.Job, wants []offer.Want, total, slots int) error {
	switch {
	case slots == 0 || total <= slots:
		return nil
	case len(wants) == 1 && job.PerNode.Total("gpu") == 0 && job.PerTask.Total("gpu") > 0:
		wants[0].Count = slots
		return nil
	}
	return fmt.Errorf("the job has gres/mig=%d and gres/gpu=%d on %s; request equal counts", total, slots, n.name)
}

// noSize returns the error for a job that has GPU slots but no slices.
func (n *Node) noSize(job slurm.Job, gpus int) error {
	size := fmt.Sprintf("%s:%d", n.SizeOf(job), gpus)
	return &Unsuitable{
		fmt.Sprintf(
			"the job has gres/gpu=%d on %s but no slice; request slices (--gres=gpu:%d,mig:%s) "+
				"or use a partition that Caelum manages",
			gpus,
			n.name,
			gpus,
			size,
		),
		size,
	}
}

// tooSmall returns the error for a grown job that slurmctld has started on a node without a sufficiently large slice.
func (n *Node) tooSmall(want offer.Want) error {
	missing := fmt.Sprintf("%s:%d", want.Grown, want.Count)
	return &Unsuitable{
		fmt.Sprintf("an earlier run showed that the job needs %s, but no GPU on %s has this profile or an equivalent "+
			"profile", want.Grown, n.name),
		missing,
	}
}

// SizeOf returns the profile for a job that does not name one: the profile that job_submit.lua chose at submission or,
// if it did not choose one, the node's default profile.
func (n *Node) SizeOf(job slurm.Job) string {
	if size := tags.Value(job.AdminComment, tags.Size); slices.Contains(n.Profiles, size) {
		return size
	}
	return n.defaultProfile()
}

// EquivalentProfiles returns the equivalent profiles of a profile that the node does not have: one profile for each GPU
// model, without duplicates. The node offers slices of the equivalent profiles under the given name.
func (n *Node) EquivalentProfiles(profile string) (names []string) {
	for _, c := range n.Cards {
		if !n.Usable(c) {
			continue
		}
		if name, ok := c.Model.EquivalentProfile(profile, c.Offerable); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// kinds returns the GPUs of the node for plan.Sizes, or nil if jobs are given exactly the profiles that they request.
func (n *Node) kinds() []place.GPU {
	if n.Settings.Tightest {
		return nil
	}
	return n.EmptyGPUs()
}

func asksForGPU(job slurm.Job) bool {
	for _, list := range []slurm.GRESList{job.PerNode, job.PerJob, job.PerTask, job.PerSocket} {
		if len(list.Named("gpu")) > 0 {
			return true
		}
	}
	return false
}

// AsksForSlices reports whether a job's request allows the job to hold slices.
func AsksForSlices(job slurm.Job) bool { return asksForGPU(job) || len(job.PerNode.Named("mig")) > 0 }
