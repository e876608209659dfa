package state

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

// Node holds the state of this node: the GPUs and the instances on them, the leases, and the current offers. Prologs,
// epilogs, the publisher and the comparisons share it. Its methods call neither the driver nor slurmctld, and no
// goroutine holds the lock while it makes such a call.
type Node struct {
	name     string   // NodeName in slurm.conf
	usual    string   // the default_profile of the configuration, or an empty string
	Profiles []string // the profiles of all GPUs that the site offers, smallest first
	Settings plan.Settings
	FullGPUs mig.FullGPUs
	Now      func() time.Time

	sync.Mutex
	Cards   []*Card
	Leases  map[uint32]*api.Lease
	Pending map[uint32]*PendingLease
	Growing *Growth // the growth of a fraction that has units reserved, or nil
	// Unserved holds the restart counts of the jobs on the node that are given neither a pending lease nor slices.
	Unserved map[uint32]int
	Former   map[Minors]uint32    // the last user of each GPU instance id
	NVLinks  map[Pair]bool        // the pairs of GPUs that are connected by NVLinks (nvlinks.go)
	PlanPart                      // the current plan
	Here     map[uint32]slurm.Job // the jobs that were on the node when slurmctld was last queried
	Noted    map[uint32]slurm.Job // the jobs granted a lease since the last listing began (publish/follow.go)
	// Version counts the changes to the state on which plans are based. The publisher applies a plan only if the
	// version has not changed since.
	Version int
}

// New discovers the node's GPUs.
func New(cfg config.Config, hw gpu.Hardware) (*Node, error) {
	settings, err := plan.ParseSettings(
		cmp.Or(cfg.Policy, place.DefaultPolicy), cmp.Or(cfg.Sizing, plan.SizingAdaptive), cfg.WholeShare)
	if err != nil {
		return nil, err
	}
	found, err := hw.GPUs()
	if err != nil {
		return nil, err
	}
	full, err := mig.ParseFullGPUs(cmp.Or(cfg.WholeGPUs, "never"))
	if err != nil {
		return nil, fmt.Errorf("whole_gpus: %w", err)
	}
	gpus, profiles, err := inventory.Divide(found, cfg.Profiles, full)
	if err != nil {
		return nil, err
	}
	if d := cfg.DefaultProfile; d != "" && len(profiles) > 0 && !slices.Contains(profiles, d) {
		return nil, fmt.Errorf("default_profile: no GPU on this node offers %q; this node offers %s",
			d, strings.Join(profiles, ", "))
	}
	n := &Node{
		name:     cfg.Node,
		usual:    cfg.DefaultProfile,
		Profiles: profiles,
		Settings: settings,
		FullGPUs: full,
		Now:      time.Now,
		Leases:   map[uint32]*api.Lease{},
		Pending:  map[uint32]*PendingLease{},
		Unserved: map[uint32]int{},
		Noted:    map[uint32]slurm.Job{},
		Former:   map[Minors]uint32{},
		NVLinks:  map[Pair]bool{},
		PlanPart: PlanPart{Offers: make([]mig.Layout, len(gpus))},
	}
	for _, g := range gpus {
		n.Cards = append(n.Cards, &Card{GPU: g, Ours: map[int]*Instance{}, Users: map[uint32]uint32{}})
	}
	return n, nil
}

// SlotCount returns the number of gres/gpu on the node.
func (n *Node) SlotCount() int {
	count := 0
	for _, c := range n.Cards {
		count += len(c.Slots)
	}
	return count
}

// defaultProfile returns the profile for a job that does not specify one: the configured default or, if there is no
// default, the largest profile of a slice, or mig.Full if the GPUs do not support MIG. It is empty if the node has no
// profiles.
func (n *Node) defaultProfile() string {
	if n.usual != "" {
		return n.usual
	}
	for _, p := range slices.Backward(n.Profiles) {
		if p != mig.Full && !mig.IsFraction(p) {
			return p
		}
	}
	if len(n.Profiles) == 0 {
		return ""
	}
	return mig.Full
}

// View returns the GPUs' state, including pending leases, as input for the planner. The caller holds the node's lock.
func (n *Node) View() []place.GPU {
	gpus := make([]place.GPU, len(n.Cards))
	for i, c := range n.Cards {
		if c.Problem != "" {
			continue
		}
		gpus[i] = c.Existing()
		if n.Growing != nil && n.Growing.GPU == i {
			gpus[i].Blocked |= n.Growing.units
			gpus[i].Idle &^= c.Model.Overlapping(n.Growing.units)
		}
		if c.HeldBack() != "" {
			full := c.Model.Full()
			gpus[i].Model, gpus[i].Offerable, gpus[i].Idle = c.withoutFull, c.Offerable&^full, gpus[i].Idle&^full
		}
		for p, in := range c.Ours {
			if gpus[i].Busy.Has(p) {
				gpus[i].Expect(p, n.endOf(in.Job, in.Profile))
			}
		}
	}
	for job, pr := range n.Pending {
		n.hold(
			gpus,
			job,
			slices.DeleteFunc(slices.Clone(pr.Spots), func(s offer.Spot) bool {
				return !possible(gpus[s.GPU], s.Placement)
			}),
		)
	}
	return gpus
}

// Holders returns the jobs that hold slices on the node and the jobs that have pending leases. The caller holds the
// node's lock.
func (n *Node) Holders() map[offer.Spot]uint32 {
	all := map[offer.Spot]uint32{}
	for i, c := range n.Cards {
		for p, in := range c.Ours {
			if in.Job != 0 {
				all[offer.Spot{GPU: i, Placement: p}] = in.Job
			}
		}
	}
	for job, pr := range n.Pending {
		for _, s := range pr.Spots {
			all[s] = job
		}
	}
	return all
}

// endOf returns the time, in Unix seconds, at which a job that holds a slice of the given profile on the node is
// expected to end, or +Inf if this time is unknown. The caller holds the node's lock.
func (n *Node) endOf(job uint32, profile string) float64 {
	j := n.Here[job]
	takes := offer.Want{Sizes: plan.Sizes(j, n.kinds())}.Takes(profile)
	if end := tags.ExpectedEnd(j, takes, n.Now()); !end.IsZero() {
		return float64(end.Unix())
	}
	return math.Inf(1)
}

// hold marks a job's spots as busy in gpus. The caller holds the node's lock.
func (n *Node) hold(gpus []place.GPU, job uint32, spots []offer.Spot) {
	for _, s := range spots {
		gpus[s.GPU].Hold(s.Placement, n.endOf(job, gpus[s.GPU].Model.ProfileOf(s.Placement)))
	}
}

// SlicesHeld returns the number of slices that jobs hold or will hold on this node, by the profile under which
// slurmctld counts each slice. The caller holds the node's lock.
func (n *Node) SlicesHeld() map[string]int {
	held := map[string]int{}
	for _, l := range n.Leases {
		for _, s := range l.Slices {
			held[cmp.Or(s.AdvertisedAs, s.Profile)]++
		}
	}
	for _, pr := range n.Pending {
		for _, w := range pr.Wants {
			held[w.Profile] += w.Count
		}
	}
	return held
}

// Held returns the instance of a job's slice, or nil if the instance no longer exists.
func (n *Node) Held(job uint32, s api.Slice) *Instance {
	n.Lock()
	defer n.Unlock()
	for _, in := range n.Cards[s.GPU].Ours {
		if in.Job == job && in.UUID == s.UUID {
			return in
		}
	}
	return nil
}

// CountedAs returns the profile name of another GPU model under which slurmctld counts a leased instance, or "" if it
// is counted under its own profile. The caller holds the node's lock.
func (n *Node) CountedAs(in *Instance) string {
	l := n.Leases[in.Job]
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

// Accounted reports whether a run of a job has a lease or a pending lease, or needs neither.
func (n *Node) Accounted(job uint32, restarts int) bool {
	n.Lock()
	defer n.Unlock()
	if l := n.Leases[job]; l != nil && l.Restart >= restarts {
		return true
	}
	if restart, ok := n.Unserved[job]; ok && restart >= restarts {
		return true
	}
	return n.Pending[job] != nil
}

// DropLease removes a lease from memory and marks its instances as idle. The caller must hold the node's lock, unless
// no other goroutine is running yet.
func (n *Node) DropLease(job uint32) {
	delete(n.Leases, job)
	for _, c := range n.Cards {
		for in := range maps.Values(c.Ours) {
			if in.Job == job {
				in.Job, in.Strangers, in.Unlimited, in.Overused = 0, nil, 0, false
			}
		}
	}
}

// Full reports whether any GPU of the node can be used as a full GPU.
func (n *Node) Full() bool { return n.MostFull() > 0 }

// WithNoted returns the jobs in here together with the noted jobs that still have a lease. The result is a copy,
// because releaseGone reads the original. The caller holds the node's lock.
func (n *Node) WithNoted(here map[uint32]slurm.Job) map[uint32]slurm.Job {
	here = maps.Clone(here)
	for id, job := range n.Noted {
		if _, listed := here[id]; !listed && n.Leases[id] != nil {
			here[id] = job
		}
	}
	return here
}

// EmptyGPUs returns the node's managed GPUs as if they had no instances. The caller holds the node's lock.
func (n *Node) EmptyGPUs() (all []place.GPU) {
	for _, c := range n.Cards {
		if c.Model != nil {
			all = append(all, place.GPU{Model: c.Model, Offerable: c.Offerable})
		}
	}
	return all
}

// Apply makes the given part the current plan, and places pending leases at the given spots. If the state no longer has
// the version on which the plan is based, it changes nothing and returns false.
func (n *Node) Apply(version int, part PlanPart, pending map[uint32][]offer.Spot) bool {
	n.Lock()
	defer n.Unlock()
	if n.Version != version {
		return false
	}
	n.PlanPart = part
	for job, spots := range pending {
		n.Pending[job].Spots = spots
	}
	return true
}

// UnchangedSince reports whether the node's state still has this version, in which case a pass scheduled after a change
// is unnecessary.
func (n *Node) UnchangedSince(version int) bool {
	n.Lock()
	defer n.Unlock()
	return n.Version == version
}
