package shadow

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/node/gpu"
	"caelum/internal/node/inventory"
	"caelum/internal/slurm"
)

// Node is a node of a trial.
type Node struct {
	Name     string
	Settings plan.Settings
	// Profile is the profile assumed for a job that requests one GPU without a profile. Whole is the profile assumed
	// for each GPU of a job with several GPUs.
	Profile, Whole string
	gpus           []inventory.GPU
	present        []gpu.GPU // the GPUs in their current state
}

// NewNode returns a node with the given GPUs as if their MIG mode were on. profiles and full are the values of the
// `profiles` and `whole_gpus` configuration keys. It returns an error if no GPU supports MIG or if no GPU supports the
// given profile.
func NewNode(
	name string, settings plan.Settings, found []gpu.GPU, profiles []string, full mig.FullGPUs, profile string,
) (*Node, error) {
	n := &Node{Name: name, Settings: settings, Profile: profile, present: found}
	enabled := slices.Clone(found)
	for k := range enabled {
		enabled[k] = withMIG(enabled[k])
	}
	var names []string
	var err error
	if n.gpus, names, err = inventory.Divide(enabled, profiles, full); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("no GPU on this node supports MIG; run caelumd shadow on another node")
	}
	if !slices.Contains(names, profile) {
		return nil, fmt.Errorf("no GPU on this node has the profile %q; choose one of %s with --profile", profile,
			strings.Join(names, ", "))
	}
	for _, p := range names {
		if p != mig.Full {
			n.Whole = p
		}
	}
	return n, nil
}

// withMIG returns a GPU as if its MIG mode were on. If the driver does not report the profiles, for example to a user
// other than root, they are taken from the table in package mig. A GPU that does not support MIG is left out.
func withMIG(g gpu.GPU) gpu.GPU {
	if g.Problem == gpu.WithoutMIG {
		g.Model = nil
	}
	if gpu.Broken(g.Problem) {
		return g
	}
	for _, m := range mig.Models() {
		if g.Model == nil && m.Device == g.Name {
			g.Model = m
		}
	}
	if g.Model != nil {
		g.Full, g.Problem = false, ""
	}
	return g
}

// Slice is a placement on a GPU.
type Slice struct {
	GPU     int
	Profile string
	Start   int
}

// Placed is a job with its slices on the node.
type Placed struct {
	Job    uint32
	UID    uint32
	Slices []Slice
}

// Pass is the plan for the node at one point in time.
type Pass struct {
	Node string
	// Closed is the node's state in Slurm if slurmctld does not start jobs on it. In that case, Starts is empty.
	Closed string
	// Running lists the jobs that are using GPUs on the node, with the slices that they would hold. NoRoom lists the
	// ids of the jobs whose slices do not fit on the node.
	Running []Placed
	NoRoom  []uint32
	// Starts lists the waiting jobs that would start on the node now. Waiting is the number of waiting jobs that could
	// run on this node but would not start on any node now.
	Starts  []Placed
	Waiting int
	// First explains why the first of these jobs must wait. It is nil if there is no explanation.
	First *plan.Explanation
	// Offers holds, for each profile, the number of additional slices that the node would offer for future jobs.
	Offers map[string]int
	GPUs   []GPU
	first  uint32 // the id of the first job that would wait, or 0
}

// GPU is the layout of a GPU in a pass.
type GPU struct {
	Index  int
	Name   string
	Now    string // the reason why Caelum could not manage the GPU in its current state
	Layout string
}

// Pass plans the node from a snapshot of the nodes and the queue. Jobs that are running on the node are placed first,
// as if Caelum had started them. Pass returns an error if slurmctld does not know the node.
func (n *Node) Pass(snapshot plan.Snapshot) (Pass, error) {
	at := slices.IndexFunc(snapshot.Nodes, func(o slurm.Node) bool { return o.Name == n.Name })
	if at < 0 {
		return Pass{}, fmt.Errorf("%s: %w; set the `node` key to the NodeName in slurm.conf", n.Name, slurm.ErrNoNode)
	}
	snapshot = n.withSlices(snapshot)
	p := Pass{Node: n.Name, Offers: map[string]int{}}
	gpus := n.runningOn(snapshot.Queue.All, &p)
	own := &snapshot.Nodes[at]
	own.Gres = n.slots(own.Gres)
	own.Extra = plan.WithState(own.Extra, plan.Text(plan.State{GPUs: gpus, Since: snapshot.At, Private: true}))
	v := plan.New(snapshot, n.Settings, nil)
	if me := v.Member(n.Name); me >= 0 {
		n.plan(v, me, gpus, &p)
	} else {
		p.Closed = strings.Join(own.States, "+")
	}
	if p.first != 0 {
		e, err := plan.Explain(snapshot, n.Settings, p.first)
		if err != nil {
			return p, err
		}
		p.First = &e
	}
	for k, g := range gpus {
		shown := GPU{Index: n.present[k].Index, Name: n.present[k].Name, Now: n.present[k].Problem}
		if g.Model != nil {
			shown.Layout = g.Model.Draw(g.Busy)
		}
		p.GPUs = append(p.GPUs, shown)
	}
	return p, nil
}

// plan adds the starts and offers of member me to p and marks the spots of the starts as busy in gpus. A job starts if
// the plan offers all of its slices or, for a job on several nodes, its slices on this node.
func (n *Node) plan(v *plan.View, me int, gpus []place.GPU, p *Pass) {
	all := v.Plan()
	p.Offers = v.Counts(all, me)
	for k, spots := range all.Spots {
		eligible := v.Jobs[k].EligibleNodes == nil || slices.Contains(v.Jobs[k].EligibleNodes, me)
		var here []offer.Spot
		offered := true
		for _, s := range spots {
			g := slices.Index(v.Nodes[me], s.GPU)
			if g < 0 {
				continue
			}
			offered = offered && all.Offers[s.GPU].Has(s.Placement)
			own, _ := gpus[g].Model.Carry(v.Pool.GPU(s.GPU).Model, mig.Layout(0).With(s.Placement))
			for i := range own.Indices() {
				here = append(here, offer.Spot{GPU: g, Placement: i})
			}
		}
		switch {
		case here != nil && offered:
			p.Starts = append(p.Starts, placed(*v.Waiting[k].Job, here, gpus))
			for _, s := range spots {
				if slices.Contains(v.Nodes[me], s.GPU) {
					p.Offers[all.Name(v.Pool.GPU(s.GPU).Model, s)]--
				}
			}
		case here != nil || spots == nil && eligible:
			p.wait(v.Waiting[k].ID)
		}
	}
	maps.DeleteFunc(p.Offers, func(_ string, count int) bool { return count <= 0 })
}

// wait counts a job that would have to wait.
func (p *Pass) wait(job uint32) {
	if p.Waiting++; p.first == 0 {
		p.first = job
	}
}

// placed marks a job's spots as busy in gpus and returns the job with its slices.
func placed(j slurm.Job, spots []offer.Spot, gpus []place.GPU) Placed {
	p := Placed{Job: j.ID, UID: j.UID}
	for _, s := range spots {
		m := gpus[s.GPU].Model
		gpus[s.GPU].Hold(s.Placement, math.Inf(1))
		p.Slices = append(p.Slices, Slice{s.GPU, m.ProfileOf(s.Placement), m.Placements[s.Placement].Start})
	}
	return p
}
