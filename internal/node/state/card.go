package state

import (
	"slices"
	"sync"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/inventory"
	"caelum/internal/node/ledger"
)

// Card describes one GPU of the node: the properties that the driver reports, and the instances on the GPU.
type Card struct {
	// GPU holds the GPU's properties. Only Problem changes; it is protected by the node's lock (see [Node.Usable]).
	inventory.GPU
	// Hardware ensures that only one call at a time changes the GPU. A goroutine that needs both locks must lock
	// Hardware before the node.
	Hardware sync.Mutex
	// Ours holds the instances that the agent created, by placement.
	Ours map[int]*Instance
	// Foreign holds the instances that other programs created. The agent never changes these instances, and treats
	// their units as occupied.
	Foreign []gpu.Instance
	// Users holds the users of the jobs with a fraction of the GPU, by job. Only they can open the GPU's device file.
	// The node's lock guards it. DeviceFile ensures that only one goroutine at a time changes the file's users.
	Users      map[uint32]uint32
	DeviceFile sync.Mutex
	// Held is the reason why the agent cannot switch MIG mode off, or an empty string. While it is set, the GPU is
	// not offered as a full GPU.
	Held string
	// Unregistered is the reason why the GPU, while it is full, cannot be used (agent/fabric.go), or an empty string.
	// While it is set, the GPU is not offered as a full GPU.
	Unregistered string
	// withoutFull is the GPU model without the mig.Full profile, for plans while one of these reasons applies. Because
	// mig.Full is the last profile, the other placements have the same indices as in Model.
	withoutFull *mig.Model
	// HookState is the state of the attempts to switch MIG mode off.
	HookState
	// nvlink is the number of the GPU's group (place.GPU.NVLink).
	nvlink int
	// Unlisted is true if the driver did not list the GPU's processes at the last attempt.
	Unlisted bool
	// Xids holds the Xid errors since the agent started, in the order of their first occurrence.
	Xids []api.XidCount
	// Withdrawn is the fatal Xid error after which the agent stopped managing the GPU, or 0 (agent/xid.go).
	Withdrawn int
	// Asked receives the result of the discovery in progress. Only a goroutine that holds the hardware lock may use it.
	Asked chan gpu.GPU
}

// Existing returns the GPU's state with the instances that exist, but without pending leases.
func (c *Card) Existing() place.GPU {
	g := place.GPU{Model: c.Model, Offerable: c.Offerable, NVLink: c.nvlink}
	for p, in := range c.Ours {
		switch {
		case in.Stuck:
			g.Blocked |= c.Model.Units(p)
		case in.Job != 0:
			g.Busy = g.Busy.With(p)
		default:
			g.Idle = g.Idle.With(p)
		}
	}
	for _, f := range c.Foreign {
		if p, ok := c.Model.Placement(f.Profile, f.Start); ok && c.Model.Fits(g.Busy, p) {
			g.Busy = g.Busy.With(p)
		} else {
			g.Blocked |= (1<<f.Size - 1) << f.Start
		}
	}
	return g
}

// Instance is a GPU instance, with its compute instance, that the agent created.
type Instance struct {
	ledger.Instance
	CIs    []int // the ids of the compute instances, which are part of the capability files' names
	SMs    int   // the number of SMs of the compute instances, or 0 if it is unknown
	MaxSMs int   // the number of SMs of a compute instance of the full size, or 0 if it is unknown
	Fresh  bool  // no job has been able to use the compute instance
	// User is the only user who has been able to use the compute instance. If it is nil and the compute instance is not
	// fresh, anyone may have used it, for example before the agent started.
	User    *uint32
	Used    bool   // processes without a job are using the instance, or have its capability files open
	Note    string // describes the processes that have its capability files open
	Blocked string // the reason why the driver did not destroy the instance at the last attempt
	// Searched is the time at which findBlockers last ran. It is zero if there was another reason why the instance was
	// not destroyed.
	Searched time.Time
	HookState
	// Unlisted is true if the driver did not list the processes on the instance at the last attempt.
	Unlisted bool
	// Strangers holds the foreign processes on the instance, by pid.
	Strangers map[int]Stranger
	// Unlimited is the number of samples in which the job's memory was not limited. Overused is true if the job used
	// more memory than its limit in one of them.
	Unlimited int
	Overused  bool
}

// record returns the ledger record of an instance at placement p that no job holds. The argument gi is the GPU instance
// id.
func (c *Card) record(p, gi int, uuid string) ledger.Instance {
	pl := c.Model.Placements[p]
	return ledger.Instance{
		GPU: c.UUID, GI: gi, Profile: c.Model.Profiles[pl.Profile].Name, Start: pl.Start, Size: pl.Size, UUID: uuid,
	}
}

// NewInstance returns an instance that no job holds, at placement p.
func (c *Card) NewInstance(p int, made gpu.Instance) *Instance {
	return &Instance{
		Instance: c.record(p, made.GI, made.UUID), CIs: made.CIs, SMs: made.SMs, MaxSMs: made.MaxSMs,
	}
}

// short reports whether the compute instance is smaller than the GPU instance. Earlier versions of the agent created
// such compute instances on GPU instances of one slice with double memory.
func (in *Instance) short() bool { return in.SMs < in.MaxSMs }

// Idle reports whether the instance can be leased to a job.
func (in *Instance) Idle() bool { return in.Job == 0 && !in.Stuck }

// HardwareOf converts an instance to a gpu.Instance.
func (n *Node) HardwareOf(in *Instance) gpu.Instance {
	n.Lock()
	defer n.Unlock()
	return gpu.Instance{
		GI: in.GI, Profile: in.Profile, Start: in.Start, Size: in.Size, CIs: in.CIs, SMs: in.SMs, MaxSMs: in.MaxSMs,
		Whole: len(in.CIs) == 1 && !in.short(), UUID: in.UUID,
	}
}

// Usable reports whether the agent can manage a GPU. A lost GPU is not usable until it is available again.
func (n *Node) Usable(c *Card) bool { return n.Problem(c) == "" }

// UsableGPUs returns the indices of the GPUs that the agent can manage, and of the withdrawn ones, whose jobs continue.
func (n *Node) UsableGPUs() (gpus []int) {
	for g, c := range n.Cards {
		if n.Usable(c) || n.IsWithdrawn(c) {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// Problem returns the reason why the agent cannot manage a GPU, or an empty string if it can.
func (n *Node) Problem(c *Card) string {
	n.Lock()
	defer n.Unlock()
	return c.Problem
}

// Reported returns the names of all profiles that the driver reports, including those that the agent does not offer. If
// the agent does not manage all GPUs, it returns nil, because the profiles of the other GPUs are unknown. The caller
// holds the node's lock.
func (n *Node) Reported() map[string]bool {
	all := map[string]bool{}
	for _, c := range n.Cards {
		if c.Problem != "" {
			return nil
		}
		for _, p := range c.Model.Profiles {
			all[p.Name] = true
		}
	}
	return all
}

// PlanWithoutFull sets withoutFull. The caller holds the node's lock.
func (c *Card) PlanWithoutFull() {
	if c.withoutFull == nil {
		c.withoutFull = c.Model.Select(func(p mig.Profile) bool { return p.Name != mig.Full })
	}
}

// Reused reports whether an instance other than in has the id gi, so that the ledger's entry for this id is that of the
// other instance. The caller holds the node's lock.
func (c *Card) Reused(gi int, in *Instance) bool {
	for _, other := range c.Ours {
		if other != in && other.GI == gi {
			return true
		}
	}
	return false
}

// IdleFull reports whether the GPU is an idle full GPU of the agent. The caller holds the node's lock.
func (c *Card) IdleFull() bool {
	for _, in := range c.Ours {
		if in.GI == gpu.FullGI {
			return in.Idle()
		}
	}
	return false
}

// HeldBack returns the reason why the GPU is not offered as a full GPU, or an empty string. The caller holds the
// node's lock.
func (c *Card) HeldBack() string {
	if c.IdleFull() {
		return c.Unregistered
	}
	if c.IsFull() {
		return ""
	}
	return c.Held
}

// MayBeFull reports whether the site allows the GPU to be a full GPU.
func (c *Card) MayBeFull() bool { return c.Model != nil && c.Model.Full() != 0 }

// IsFull reports whether the GPU's MIG mode is off. The caller holds the node's lock.
func (c *Card) IsFull() bool {
	for _, in := range c.Ours {
		if in.GI == gpu.FullGI {
			return true
		}
	}
	for _, f := range c.Foreign {
		if f.GI == gpu.FullGI {
			return true
		}
	}
	return false
}

// IsWithdrawn reports whether the agent has withdrawn a GPU after a fatal Xid error.
func (n *Node) IsWithdrawn(c *Card) bool {
	n.Lock()
	defer n.Unlock()
	return c.Withdrawn != 0
}

// Stale reports whether a job or another program may have used the compute instance, or whether it is too small. Full
// GPUs and fractions have no compute instance.
func (in *Instance) Stale() bool { return in.GI > gpu.FullGI && (!in.Fresh || in.short()) }

// NeedsRemake reports whether an idle instance needs a new compute instance before it can be leased to a user. The
// caller holds the node's lock.
func (n *Node) NeedsRemake(in *Instance, uid uint32) bool {
	return in.Stale() && (in.short() || in.User == nil || *in.User != uid)
}

// Promised reports whether a spot belongs to a pending lease. The caller holds the node's lock.
func (n *Node) Promised(s offer.Spot) bool {
	for _, pr := range n.Pending {
		if slices.Contains(pr.Spots, s) {
			return true
		}
	}
	return false
}

// HookState records whether the hook must run for an instance or for a GPU's MIG mode. The node's lock guards it.
type HookState struct {
	WantsHook bool      // the hook must run
	HookedAt  time.Time // the time at which the hook last ran
}

// Minors identifies the capabilities that belong to a GPU instance id. All instances with the same GPU instance id on
// a GPU have the same capabilities.
type Minors struct {
	GPU string // UUID
	GI  int
}

// Stranger is a foreign process: a process that uses a leased slice but does not belong to its job. Process.Start
// distinguishes it from a later process that has the same pid.
type Stranger struct {
	gpu.Process
	Why string
}
