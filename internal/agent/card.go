package agent

import (
	"slices"
	"sync"
	"time"

	"caelum/internal/api"
	"caelum/internal/gpu"
	"caelum/internal/inventory"
	"caelum/internal/ledger"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
)

// card describes one GPU of the node: the properties that the driver reports, and the instances on the GPU.
type card struct {
	// GPU holds the GPU's properties. Only Problem changes; it is protected by the node's lock (see [node.usable]).
	inventory.GPU
	// hardware ensures that only one call at a time changes the GPU. A goroutine that needs both locks must lock
	// hardware before the node.
	hardware sync.Mutex
	// ours holds the instances that the agent created, by placement.
	ours map[int]*instance
	// foreign holds the instances that other programs created. The agent never changes these instances, and treats
	// their units as occupied.
	foreign []gpu.Instance
	// held is the reason why the agent cannot switch MIG mode off, or an empty string. While it is set, the GPU is
	// not offered as a full GPU.
	held string
	// unregistered is the reason why the GPU, while it is full, cannot be used (fabric.go), or an empty string. While
	// it is set, the GPU is not offered as a full GPU.
	unregistered string
	// withoutFull is the GPU model without the mig.Full profile, for plans while one of these reasons applies. Because
	// mig.Full is the last profile, the other placements have the same indices as in Model.
	withoutFull *mig.Model
	// hookState is the state of the attempts to switch MIG mode off.
	hookState
	// nvlink is the number of the GPU's group (place.GPU.NVLink).
	nvlink int
	// unlisted is true if the driver did not list the GPU's processes at the last attempt.
	unlisted bool
	// xids holds the Xid errors since the agent started, in the order of their first occurrence.
	xids []api.XidCount
	// withdrawn is the fatal Xid error after which the agent stopped managing the GPU, or 0 (xid.go).
	withdrawn int
	// asked receives the result of the discovery in progress. Only a goroutine that holds the hardware lock may use it.
	asked chan gpu.GPU
}

// existing returns the GPU's state with the instances that exist, but without pending leases.
func (c *card) existing() place.GPU {
	g := place.GPU{Model: c.Model, Offerable: c.Offerable, NVLink: c.nvlink}
	for p, in := range c.ours {
		switch {
		case in.Stuck:
			g.Blocked |= c.Model.Units(p)
		case in.Job != 0:
			g.Busy = g.Busy.With(p)
		default:
			g.Idle = g.Idle.With(p)
		}
	}
	for _, f := range c.foreign {
		if p, ok := c.Model.Placement(f.Profile, f.Start); ok && c.Model.Fits(g.Busy, p) {
			g.Busy = g.Busy.With(p)
		} else {
			g.Blocked |= (1<<f.Size - 1) << f.Start
		}
	}
	return g
}

// instance is a GPU instance, with its compute instance, that the agent created.
type instance struct {
	ledger.Instance
	cis    []int // the ids of the compute instances, which are part of the capability files' names
	sms    int   // the number of SMs of the compute instances, or 0 if it is unknown
	maxSMs int   // the number of SMs of a compute instance of the full size, or 0 if it is unknown
	fresh  bool  // no job has been able to use the compute instance
	// user is the only user who has been able to use the compute instance. If it is nil and the compute instance is not
	// fresh, anyone may have used it, for example before the agent started.
	user    *uint32
	used    bool   // processes without a job are using the instance, or have its capability files open
	note    string // describes the processes that have its capability files open
	blocked string // the reason why the driver did not destroy the instance at the last attempt
	// searched is the time at which findBlockers last ran. It is zero if there was another reason why the instance was
	// not destroyed.
	searched time.Time
	hookState
	// unlisted is true if the driver did not list the processes on the instance at the last attempt.
	unlisted bool
	// strangers holds the foreign processes on the instance, by pid.
	strangers map[int]stranger
}

// record returns the ledger record of an instance at placement p that no job holds. The argument gi is the GPU instance
// id.
func (c *card) record(p, gi int, uuid string) ledger.Instance {
	pl := c.Model.Placements[p]
	return ledger.Instance{
		GPU: c.UUID, GI: gi, Profile: c.Model.Profiles[pl.Profile].Name, Start: pl.Start, Size: pl.Size, UUID: uuid,
	}
}

// newInstance returns an instance that no job holds, at placement p.
func (c *card) newInstance(p int, made gpu.Instance) *instance {
	return &instance{
		Instance: c.record(p, made.GI, made.UUID), cis: made.CIs, sms: made.SMs, maxSMs: made.MaxSMs,
	}
}

// short reports whether the compute instance is smaller than the GPU instance. Earlier versions of the agent created
// such compute instances on GPU instances of one slice with double memory.
func (in *instance) short() bool { return in.sms < in.maxSMs }

func (in *instance) idle() bool { return in.Job == 0 && !in.Stuck }

// hwOf converts an instance to a gpu.Instance.
func (n *node) hwOf(in *instance) gpu.Instance {
	n.Lock()
	defer n.Unlock()
	return gpu.Instance{
		GI: in.GI, Profile: in.Profile, Start: in.Start, Size: in.Size, CIs: in.cis, SMs: in.sms, MaxSMs: in.maxSMs,
		Whole: len(in.cis) == 1 && !in.short(), UUID: in.UUID,
	}
}

// usable reports whether the agent can manage a GPU. A lost GPU is not usable until it is available again.
func (n *node) usable(c *card) bool { return n.problem(c) == "" }

// usableGPUs returns the indices of the GPUs that the agent can manage, and of the withdrawn ones, whose jobs continue.
func (n *node) usableGPUs() (gpus []int) {
	for g, c := range n.cards {
		if n.usable(c) || n.isWithdrawn(c) {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// problem returns the reason why the agent cannot manage a GPU, or an empty string if it can.
func (n *node) problem(c *card) string {
	n.Lock()
	defer n.Unlock()
	return c.Problem
}

// reported returns the names of all profiles that the driver reports, including those that the agent does not offer. If
// the agent does not manage all GPUs, it returns nil, because the profiles of the other GPUs are unknown. The caller
// holds the node's lock.
func (n *node) reported() map[string]bool {
	all := map[string]bool{}
	for _, c := range n.cards {
		if c.Problem != "" {
			return nil
		}
		for _, p := range c.Model.Profiles {
			all[p.Name] = true
		}
	}
	return all
}

// planWithoutFull sets withoutFull. The caller holds the agent's lock.
func (c *card) planWithoutFull() {
	if c.withoutFull == nil {
		c.withoutFull = c.Model.Select(func(p mig.Profile) bool { return p.Name != mig.Full })
	}
}

// idleFull reports whether the GPU is an idle full GPU of the agent. The caller holds the agent's lock.
func (c *card) idleFull() bool {
	for _, in := range c.ours {
		if in.GI == gpu.FullGI {
			return in.idle()
		}
	}
	return false
}

// heldBack returns the reason why the GPU is not offered as a full GPU, or an empty string. The caller holds the
// agent's lock.
func (c *card) heldBack() string {
	if c.idleFull() {
		return c.unregistered
	}
	if c.isFull() {
		return ""
	}
	return c.held
}

func (c *card) mayBeFull() bool { return c.Model != nil && c.Model.Full() != 0 }

// isFull reports whether the GPU's MIG mode is off. The caller holds the agent's lock.
func (c *card) isFull() bool {
	for _, in := range c.ours {
		if in.GI == gpu.FullGI {
			return true
		}
	}
	for _, f := range c.foreign {
		if f.GI == gpu.FullGI {
			return true
		}
	}
	return false
}

// isWithdrawn reports whether the agent has withdrawn a GPU after a fatal Xid error.
func (n *node) isWithdrawn(c *card) bool {
	n.Lock()
	defer n.Unlock()
	return c.withdrawn != 0
}

// stale reports whether a job or another program may have used the compute instance, or whether it is too small.
func (in *instance) stale() bool { return in.GI != gpu.FullGI && (!in.fresh || in.short()) }

// needsRemake reports whether an idle instance needs a new compute instance before it can be leased to a user. The
// caller holds the node's lock.
func (n *node) needsRemake(in *instance, uid uint32) bool {
	return in.stale() && (in.short() || in.user == nil || *in.user != uid)
}

// promised reports whether a spot belongs to a pending lease. The caller holds the node's lock.
func (n *node) promised(s offer.Spot) bool {
	for _, pr := range n.pending {
		if slices.Contains(pr.spots, s) {
			return true
		}
	}
	return false
}

// hookState records whether the hook must run for an instance or for a GPU's MIG mode. the node's lock guards it.
type hookState struct {
	hook   bool      // the hook must run
	hooked time.Time // the time at which the hook last ran
}

// minorsOf identifies the capabilities that belong to a GPU instance id. All instances with the same GPU instance id on
// a GPU have the same capabilities.
type minorsOf struct {
	gpu string // UUID
	gi  int
}

// stranger is a foreign process: a process that uses a leased slice but does not belong to its job. Process.Start
// distinguishes it from a later process that has the same pid.
type stranger struct {
	gpu.Process
	why string
}
