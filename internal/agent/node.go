package agent

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"caelum/internal/api"
	"caelum/internal/config"
	"caelum/internal/gpu"
	"caelum/internal/inventory"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"caelum/internal/tags"
)

// node holds the state of this node: the GPUs and the instances on them, the leases, and the current offers. Prologs,
// epilogs, the publisher and the comparisons share it. Its methods call neither the driver nor slurmctld, and no
// goroutine holds the lock while it makes such a call.
type node struct {
	name     string   // NodeName in slurm.conf
	usual    string   // the default_profile of the configuration, or an empty string
	profiles []string // the profiles of all GPUs that the site offers, smallest first
	settings plan.Settings
	whole    mig.Whole
	now      func() time.Time

	sync.Mutex
	cards   []*card
	leases  map[uint32]*api.Lease
	pending map[uint32]*pendingLease
	// unserved holds the restart counts of the jobs on the node that are given neither a pending lease nor slices.
	unserved map[uint32]int
	former   map[minorsOf]uint32  // the last user of each GPU instance id
	nvlinks  map[pair]bool        // the pairs of GPUs that are connected by NVLinks (nvlink.go)
	planPart                      // the current plan
	here     map[uint32]slurm.Job // the jobs that were on the node when slurmctld was last queried
	noted    map[uint32]slurm.Job // the jobs granted a lease since the last listing began (follow.go)
	// version counts the changes to the state on which plans are based. The publisher applies a plan only if the
	// version has not changed since.
	version int
}

// newNode discovers the node's GPUs.
func newNode(cfg config.Config, hw gpu.Hardware) (*node, error) {
	settings, err := plan.ParseSettings(
		cmp.Or(cfg.Policy, place.DefaultPolicy), cmp.Or(cfg.Sizing, plan.SizingAdaptive), cfg.WholeShare)
	if err != nil {
		return nil, err
	}
	found, err := hw.GPUs()
	if err != nil {
		return nil, err
	}
	whole, err := mig.ParseWhole(cmp.Or(cfg.WholeGPUs, "never"))
	if err != nil {
		return nil, fmt.Errorf("whole_gpus: %w", err)
	}
	gpus, profiles, err := inventory.Divide(found, cfg.Profiles, whole)
	if err != nil {
		return nil, err
	}
	if d := cfg.DefaultProfile; d != "" && len(profiles) > 0 && !slices.Contains(profiles, d) {
		return nil, fmt.Errorf("default_profile: no GPU on this node offers %q; this node offers %s",
			d, strings.Join(profiles, ", "))
	}
	n := &node{
		name:     cfg.Node,
		usual:    cfg.DefaultProfile,
		profiles: profiles,
		settings: settings,
		whole:    whole,
		now:      time.Now,
		leases:   map[uint32]*api.Lease{},
		pending:  map[uint32]*pendingLease{},
		unserved: map[uint32]int{},
		noted:    map[uint32]slurm.Job{},
		former:   map[minorsOf]uint32{},
		nvlinks:  map[pair]bool{},
		planPart: planPart{offers: make([]mig.Layout, len(gpus))},
	}
	for _, g := range gpus {
		n.cards = append(n.cards, &card{GPU: g, ours: map[int]*instance{}})
	}
	return n, nil
}

func (n *node) slotCount() int {
	count := 0
	for _, c := range n.cards {
		count += len(c.Slots)
	}
	return count
}

// defaultProfile returns the profile for a job that does not specify one: the configured default or, if there is no
// default, the largest profile of a slice. It is empty if the node has no profiles.
func (n *node) defaultProfile() string {
	if n.usual != "" {
		return n.usual
	}
	for _, p := range slices.Backward(n.profiles) {
		if p != mig.Full {
			return p
		}
	}
	return ""
}

// view returns the GPUs' state, including pending leases, as input for the planner. The caller holds the node's lock.
func (n *node) view() []place.GPU {
	gpus := make([]place.GPU, len(n.cards))
	for i, c := range n.cards {
		if c.Problem != "" {
			continue
		}
		gpus[i] = c.existing()
		if c.heldBack() != "" {
			full := c.Model.Full()
			gpus[i].Model, gpus[i].Offerable, gpus[i].Idle = c.withoutFull, c.Offerable&^full, gpus[i].Idle&^full
		}
		for p, in := range c.ours {
			if gpus[i].Busy.Has(p) {
				gpus[i].Expect(p, n.endOf(in.Job, in.Profile))
			}
		}
	}
	for job, pr := range n.pending {
		n.hold(
			gpus,
			job,
			slices.DeleteFunc(slices.Clone(pr.spots), func(s offer.Spot) bool {
				return !possible(gpus[s.GPU], s.Placement)
			}),
		)
	}
	return gpus
}

// holders returns the jobs that hold slices on the node and the jobs that have pending leases. The caller holds the node's lock.
func (n *node) holders() map[offer.Spot]uint32 {
	all := map[offer.Spot]uint32{}
	for i, c := range n.cards {
		for p, in := range c.ours {
			if in.Job != 0 {
				all[offer.Spot{GPU: i, Placement: p}] = in.Job
			}
		}
	}
	for job, pr := range n.pending {
		for _, s := range pr.spots {
			all[s] = job
		}
	}
	return all
}

// endOf returns the time, in Unix seconds, at which a job that holds a slice of the given profile on the node is
// expected to end, or +Inf if this time is unknown. The caller holds the node's lock.
func (n *node) endOf(job uint32, profile string) float64 {
	j := n.here[job]
	takes := offer.Want{Sizes: plan.Sizes(j, n.kinds())}.Takes(profile)
	if end := tags.ExpectedEnd(j, takes, n.now()); !end.IsZero() {
		return float64(end.Unix())
	}
	return math.Inf(1)
}

// hold marks a job's spots as busy in gpus. The caller holds the node's lock.
func (n *node) hold(gpus []place.GPU, job uint32, spots []offer.Spot) {
	for _, s := range spots {
		gpus[s.GPU].Hold(s.Placement, n.endOf(job, gpus[s.GPU].Model.ProfileOf(s.Placement)))
	}
}

// slicesHeld returns the number of slices that jobs hold or will hold on this node, by the profile under which
// slurmctld counts each slice. The caller holds the node's lock.
func (n *node) slicesHeld() map[string]int {
	held := map[string]int{}
	for _, l := range n.leases {
		for _, s := range l.Slices {
			held[cmp.Or(s.AdvertisedAs, s.Profile)]++
		}
	}
	for _, pr := range n.pending {
		for _, w := range pr.wants {
			held[w.Profile] += w.Count
		}
	}
	return held
}

// held returns the instance of a job's slice, or nil if the instance no longer exists.
func (n *node) held(job uint32, s api.Slice) *instance {
	n.Lock()
	defer n.Unlock()
	for _, in := range n.cards[s.GPU].ours {
		if in.Job == job && in.UUID == s.UUID {
			return in
		}
	}
	return nil
}

// countedAs returns the profile name of another GPU model under which slurmctld counts a leased instance, or "" if it
// is counted under its own profile. The caller holds the node's lock.
func (n *node) countedAs(in *instance) string {
	l := n.leases[in.Job]
	if l == nil {
		return ""
	}
	for _, s := range l.Slices {
		if s.UUID == in.UUID {
			return s.AdvertisedAs
		}
	}
	return ""
}

// accounted reports whether a run of a job has a lease or a pending lease, or needs neither.
func (n *node) accounted(job uint32, restarts int) bool {
	n.Lock()
	defer n.Unlock()
	if l := n.leases[job]; l != nil && l.Restart >= restarts {
		return true
	}
	if restart, ok := n.unserved[job]; ok && restart >= restarts {
		return true
	}
	return n.pending[job] != nil
}

// dropLease removes a lease from memory and marks its instances as idle. The caller must hold the node's lock, unless no other
// goroutine is running yet.
func (n *node) dropLease(job uint32) {
	delete(n.leases, job)
	for _, c := range n.cards {
		for in := range maps.Values(c.ours) {
			if in.Job == job {
				in.Job, in.strangers = 0, nil
			}
		}
	}
}

// full reports whether any GPU of the node can be used as a full GPU.
func (n *node) full() bool {
	for _, c := range n.cards {
		if c.mayBeFull() {
			return true
		}
	}
	return false
}

// withNoted returns the jobs in here together with the noted jobs that still have a lease. The result is a copy,
// because releaseGone reads the original. The caller holds the node's lock.
func (n *node) withNoted(here map[uint32]slurm.Job) map[uint32]slurm.Job {
	here = maps.Clone(here)
	for id, job := range n.noted {
		if _, listed := here[id]; !listed && n.leases[id] != nil {
			here[id] = job
		}
	}
	return here
}

// emptyGPUs returns the node's managed GPUs as if they had no instances. The caller holds the node's lock.
func (n *node) emptyGPUs() (all []place.GPU) {
	for _, c := range n.cards {
		if c.Model != nil {
			all = append(all, place.GPU{Model: c.Model, Offerable: c.Offerable})
		}
	}
	return all
}

// apply makes the given part the current plan, and places pending leases at the given spots. If the state no longer has
// the version on which the plan is based, it changes nothing and returns false.
func (n *node) apply(version int, part planPart, pending map[uint32][]offer.Spot) bool {
	n.Lock()
	defer n.Unlock()
	if n.version != version {
		return false
	}
	n.planPart = part
	for job, spots := range pending {
		n.pending[job].spots = spots
	}
	return true
}

// unchangedSince reports whether the node's state still has this version, in which case a pass scheduled after a change
// is unnecessary.
func (n *node) unchangedSince(version int) bool {
	n.Lock()
	defer n.Unlock()
	return n.version == version
}
