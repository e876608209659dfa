package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// world is a random cluster from which tests take snapshots. Each event changes one thing that slurmctld would show.
type world struct {
	*rand.Rand
	t        testing.TB
	changes  []func(*slurm.Waiting)
	gpus     [][]place.GPU // by node
	snapshot Snapshot
	next     uint32
	left     map[string]bool // the nodes that the plan excludes
}

// newWorld returns a cluster of n nodes without jobs.
func newWorld(t *testing.T, seed uint64, n int) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 3)), t: t, next: 1, left: map[string]bool{}}
	w.changes = requestChanges(w.Rand)
	w.snapshot = snapshotOf(nil)
	models := []*mig.Model{model(t, "A100-40GB"), model(t, "A30-24GB")}
	if w.IntN(2) == 0 {
		models[0] = models[0].WithFull(40960)
	}
	for len(w.gpus) < n {
		for k, node := range variedNodes(t, w.Rand) {
			var gpus []place.GPU
			b := models[min(w.IntN(4), 1)^1]
			for range 1 + w.IntN(4) {
				gpus = append(gpus, place.GPU{Model: b, Offerable: plain(b) | b.Full(), NVLink: w.IntN(3) * (k % 2)})
			}
			node.Name = fmt.Sprint("n", len(w.gpus))
			if seed%2 == 0 { // few jobs lack CPUs or memory
				node.CPUs, node.CPUsFree, node.MemoryFree, node.GresUsed = 64, 64, 500, nil
			}
			node.Weight = w.IntN(2)
			w.gpus, w.snapshot.Nodes = append(w.gpus, gpus), append(w.snapshot.Nodes, node)
			w.publish(len(w.gpus) - 1)
		}
	}
	return w
}

// publish writes the state of a node's GPUs into the node's Extra.
func (w *world) publish(k int) {
	w.nodes()
	n := &w.snapshot.Nodes[k]
	since := w.snapshot.At.Add(-time.Duration(w.IntN(100)) * time.Second)
	text := Text(State{GPUs: w.gpus[k], Since: since, Private: k%3 == 0})
	n.Extra = WithNVLink(WithState(n.Extra, text), w.gpus[k])
}

// nodes and queue copy the lists of the snapshot, because earlier snapshots share them.
func (w *world) nodes() { w.snapshot.Nodes = slices.Clone(w.snapshot.Nodes) }

func (w *world) queue() {
	w.snapshot.Queue.Waiting = slices.Clone(w.snapshot.Queue.Waiting)
	for k, j := range w.snapshot.Queue.Waiting {
		w.snapshot.Queue.Waiting[k] = j.Clone()
	}
	w.snapshot.Queue.All = slices.Clone(w.snapshot.Queue.All)
}

// submit adds a job that differs from a simple job in some random fields.
func (w *world) submit() {
	w.queue()
	j := waits(w.next, []string{"1g.5gb", "1g.6gb", "2g.10gb", "3g.20gb", "7g.40gb", "full"}[w.IntN(6)], 1, 1)
	w.next++
	j.Submit, j.Priority, j.CPUs = w.snapshot.At, uint64(1+w.IntN(3)), 1
	for range w.IntN(4) {
		w.changes[w.IntN(len(w.changes))](&j)
	}
	switch w.IntN(8) {
	case 0:
		j.PerNode = append(slurm.GRESList{}, j.PerNode...)
		j.PerNode[0].Count = 1 + w.IntN(3)
	case 1:
		j.Priority, j.AdminComment, j.Reason = 0, tags.Held+" "+j.AdminComment, "JobHeldUser"
	case 2:
		j.AdminComment += fmt.Sprint(" ", tags.RunTime, 10+w.IntN(5000))
	case 3:
		j.Licenses = "l"
	case 5, 6:
		j.Deadline = w.snapshot.At.Add(time.Duration(w.IntN(8000)) * time.Second)
		j.TimeMin = time.Duration(w.IntN(2)*w.IntN(50)) * time.Minute
	case 4:
		j.Elements, j.ArrayJob, j.ArrayTask = 3, j.ID, "1-3"
	}
	w.snapshot.Queue.Waiting = append(w.snapshot.Queue.Waiting, j)
	if j.HetJob != 0 && w.IntN(2) == 0 {
		j = j.Clone()
		j.ID, j.PerNode = w.next, nil
		w.snapshot.Queue.Waiting = append(w.snapshot.Queue.Waiting, j)
		w.next++
	}
	slurm.SortWaiting(w.snapshot.Queue.Waiting)
}

// start makes a waiting job run on the offer that the plan has for it.
func (w *world) start(v *View, spots [][]int) {
	for k, at := range spots {
		if at == nil || v.Waiting[k].Elements > 1 || v.Waiting[k].HetJob != 0 {
			continue
		}
		w.queue()
		id := v.Waiting[k].ID
		q := &w.snapshot.Queue
		i := slices.IndexFunc(q.Waiting, func(o slurm.Waiting) bool { return o.ID == id })
		j := q.Waiting[i].Job
		q.Waiting = slices.Delete(q.Waiting, i, i+1)
		j.State, j.Start, j.End = "RUNNING", w.snapshot.At, w.snapshot.At.Add(j.TimeLimit)
		m := slices.IndexFunc(w.snapshot.Nodes, func(n slurm.Node) bool { return n.Name == v.Members[at[0]].Name })
		j.Nodes = []string{w.snapshot.Nodes[m].Name}
		q.All = append(q.All, *j)
		w.gpus[m] = slices.Clone(w.gpus[m])
		if g := &w.gpus[m][at[1]]; g.Model.Fits(g.Busy|g.Idle, at[2]) {
			g.Hold(at[2], float64(j.End.Unix()))
		}
		w.publish(m)
		return
	}
}

// end ends the first job of a random node that has one, or frees a placement.
func (w *world) end() {
	w.queue()
	k := w.IntN(len(w.gpus))
	name := w.snapshot.Nodes[k].Name
	w.snapshot.Queue.All = slices.DeleteFunc(w.snapshot.Queue.All, func(j slurm.Job) bool {
		return slices.Contains(j.Nodes, name) && w.IntN(2) == 0
	})
	if w.IntN(3) == 0 {
		return // the node publishes later
	}
	w.gpus[k] = slices.Clone(w.gpus[k])
	for g := range w.gpus[k] {
		for i := range w.gpus[k][g].Busy.Indices() {
			if w.IntN(2) == 0 {
				w.gpus[k][g].Busy = w.gpus[k][g].Busy.Without(i)
			}
		}
	}
	w.publish(k)
}

// node changes one property of a random node.
func (w *world) node() {
	w.nodes()
	k := w.IntN(len(w.gpus))
	n := &w.snapshot.Nodes[k]
	switch w.IntN(10) {
	case 0:
		n.States = [][]string{
			{"IDLE"}, {"DOWN"}, {"MIXED", "DRAIN"}, {"IDLE", "COMPLETING"}, {"IDLE", "POWERED_DOWN"},
			{"IDLE", "POWERING_DOWN"},
		}[w.IntN(6)]
	case 1:
		n.Features = [][]string{nil, {"a"}, {"b"}}[w.IntN(3)]
	case 2:
		n.CPUsFree = w.IntN(n.CPUs + 1)
	case 3:
		n.MemoryFree = w.IntN(500)
	case 4:
		w.publish(k)
	case 5:
		w.gpus[k] = slices.Clone(w.gpus[k])
		g := &w.gpus[k][w.IntN(len(w.gpus[k]))]
		if free := g.Model.Open(g.Busy|g.Idle, g.Blocked) & g.Offerable; free != 0 {
			at := w.IntN(free.Count())
			for i := range free.Indices() {
				if at--; at == -1 && w.IntN(2) == 0 {
					g.Hold(i, float64(w.snapshot.At.Unix()+int64(w.IntN(5000))-20))
				} else if at == -1 {
					g.Idle = g.Idle.With(i)
				}
			}
		}
		w.publish(k)
	case 6:
		w.left[n.Name] = !w.left[n.Name]
	case 7:
		n.GresUsed = append(slurm.GRESList{}, slurm.GRES{Name: "mig", Type: "1g.6gb", Count: w.IntN(2)})
	case 8:
		n.Weight = w.IntN(3)
	case 9:
		w.gpus[k] = slices.Clone(w.gpus[k])
		for g := range w.gpus[k] {
			w.gpus[k][g].Offerable &^= w.gpus[k][g].Model.OfProfile(w.IntN(3))
		}
		w.publish(k)
	}
}

// job changes one property of a waiting job, the free licences, or the users without reservations.
func (w *world) job() {
	w.queue()
	q := &w.snapshot.Queue
	if len(q.Waiting) == 0 {
		return
	}
	k := w.IntN(len(q.Waiting))
	j := &q.Waiting[k]
	switch w.IntN(8) {
	case 0:
		q.Waiting = slices.Delete(q.Waiting, k, k+1)
	case 1:
		j.Priority = uint64(w.IntN(4))
	case 2:
		j.Reason = []string{"Resources", "Dependency", "None"}[w.IntN(3)]
	case 3:
		j.AdminComment = []string{"", tags.Size + "1g.5gb", tags.RunTime + "30", tags.Held}[w.IntN(4)]
	case 4:
		if j.PerNode = slices.Clone(j.PerNode); len(j.PerNode) > 0 {
			w.changes[w.IntN(len(w.changes))](j)
		}
	case 5:
		q.Licenses = map[string]int{"l": w.IntN(2)}
	case 7:
		j.Deadline = w.snapshot.At.Add(time.Duration(w.IntN(8000)-1000) * time.Second)
	case 6:
		w.snapshot.paused = map[uint32]bool{uint32(w.IntN(2)): true}
	}
	slurm.SortWaiting(q.Waiting)
}

// event changes the cluster. v is the view of the snapshot before the event, and spots holds the first spot of each
// of its jobs: the member, the GPU's index on that member and the placement.
func (w *world) event(v *View, spots [][]int) {
	w.snapshot.At = w.snapshot.At.Add(time.Duration(w.IntN(3)) * time.Duration(w.IntN(30000)) * time.Millisecond)
	switch w.IntN(8) {
	case 0, 1, 2:
		w.submit()
	case 3, 4:
		w.start(v, spots)
	case 5:
		w.end()
	case 6:
		w.node()
	case 7:
		w.job()
	}
}
