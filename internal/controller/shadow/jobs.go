package shadow

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// withSlices returns a copy of the snapshot in which all jobs that request GPUs also request slices, as if
// job_submit.lua had processed it.
func (n *Node) withSlices(snapshot plan.Snapshot) plan.Snapshot {
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	snapshot.Queue.All = slices.Clone(snapshot.Queue.All)
	snapshot.Queue.Waiting = slices.Clone(snapshot.Queue.Waiting)
	for k := range snapshot.Queue.All {
		n.addSlices(&snapshot.Queue.All[k])
	}
	for k := range snapshot.Queue.Waiting {
		w := &snapshot.Queue.Waiting[k]
		*w = w.Clone()
		n.addSlices(w.Job)
	}
	return snapshot
}

// addSlices adds one slice per GPU to the request of a job that requests GPUs but no slices.
func (n *Node) addSlices(j *slurm.Job) {
	gpus := j.GPUsPerNode()
	if gpus == 0 || len(j.SlicesPerNode()) > 0 {
		return
	}
	profile := n.Profile
	if gpus > 1 {
		profile = n.Whole
	}
	j.PerNode = append(slices.Clone(j.PerNode), slurm.GRES{Name: "mig", Type: profile, Count: gpus})
	j.AdminComment += " " + tags.Size + profile
}

// runningOn returns the node's GPUs with the slices of the jobs that are running there, and adds these jobs to p.
func (n *Node) runningOn(jobs []slurm.Job, p *Pass) []place.GPU {
	gpus := make([]place.GPU, len(n.gpus))
	for k, g := range n.gpus {
		if g.Problem == "" {
			gpus[k] = place.GPU{Model: g.Model, Offerable: g.Offerable}
		}
	}
	running := slices.DeleteFunc(slices.Clone(jobs), func(j slurm.Job) bool {
		return !j.Holds() || !slices.Contains(j.Nodes, n.Name) || len(j.SlicesPerNode()) == 0
	})
	slices.SortFunc(running, func(a, b slurm.Job) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
	var fit []slurm.Job
	var demands []*offer.Job
	spots := map[uint32][]offer.Spot{}
	for _, j := range running {
		more := append(slices.Clone(demands), &offer.Job{ID: j.ID, Wants: n.wants(j)})
		at, ok := offer.Pack(gpus, more)
		if !ok {
			p.NoRoom = append(p.NoRoom, j.ID)
			continue
		}
		fit, demands, spots = append(fit, j), more, at
	}
	for _, j := range fit {
		p.Running = append(p.Running, placed(j, spots[j.ID], gpus))
	}
	return gpus
}

// wants returns the slices of a running job. If a GPU model lacks a profile, an equivalent profile is used instead.
func (n *Node) wants(j slurm.Job) (wants []offer.Want) {
	for _, g := range j.SlicesPerNode() {
		want := offer.Want{Profile: g.Type, Count: g.Count}
		for _, o := range n.gpus {
			if o.Problem != "" {
				continue
			}
			if name, ok := o.Model.EquivalentProfile(g.Type, o.Offerable); ok && name != g.Type {
				want.Alternatives = append(want.Alternatives, name)
			}
		}
		wants = append(wants, want)
	}
	return wants
}

// slots returns the node's GRES with Caelum's number of slots: one for each slice that its GPUs can hold.
func (n *Node) slots(gres slurm.GRESList) slurm.GRESList {
	gres = slices.Clone(gres)
	count := 0
	var first *mig.Model
	for _, g := range n.gpus {
		count += len(g.Slots)
		if g.Problem == "" && first == nil {
			first = g.Model
		}
	}
	for k := range gres {
		if gres[k].Name == "gpu" {
			gres[k].Count, count = count, 0
		}
	}
	if count > 0 && first != nil {
		gres = append(gres, slurm.GRES{Name: "gpu", Type: first.Type, Count: count})
	}
	return gres
}
