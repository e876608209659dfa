package plan

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// BenchmarkPlanAfterEvent measures how long a Planner takes for its view and plan after one event, and how long a new
// view and plan take for the same snapshot. The sub-benchmarks are named after the numbers of nodes, GPUs per node
// and waiting jobs. Of the placements, 90% are busy. The p50-ms and p99-ms metrics are quantiles over the events and
// full-p50-ms is the median of the new plans, all in CPU time of the process. Before each measurement, the benchmark
// collects the snapshot's garbage. state-MB is the memory of the Planner with its last view and snapshot.
func BenchmarkPlanAfterEvent(b *testing.B) {
	settings, err := ParseSettings(place.DefaultPolicy, SizingAdaptive, 0)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []struct{ nodes, jobs int }{{64, 500}, {256, 2000}, {1024, 5000}} {
		b.Run(fmt.Sprintf("%dx8/%d", size.nodes, size.jobs), func(b *testing.B) {
			e := newEvents(b, size.nodes, size.jobs)
			planner := NewPlanner(settings)
			v := planner.View(e.answer(), nil)
			p := v.Plan()
			var after, full []float64
			for b.Loop() {
				e.next(v, p)
				snapshot := e.answer()
				if len(full) < 20 {
					runtime.GC()
					from := processTime()
					New(snapshot, settings, nil).Plan()
					full = append(full, processTime()-from)
				}
				runtime.GC()
				from := processTime()
				v = planner.View(snapshot, nil)
				p = v.Plan()
				after = append(after, processTime()-from)
			}
			held := heap()
			runtime.KeepAlive(planner)
			planner, v, p = nil, nil, offer.Plan{}
			b.ReportMetric(held-heap(), "state-MB")
			slices.Sort(after)
			slices.Sort(full)
			b.ReportMetric(after[len(after)/2], "p50-ms")
			b.ReportMetric(after[len(after)*99/100], "p99-ms")
			b.ReportMetric(full[len(full)/2], "full-p50-ms")
		})
	}
}

// heap returns the size of the live objects in MB.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// processTime returns the CPU time of the process in ms.
func processTime() float64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return float64(t.Nano()) / 1e6
}

// events changes a large cluster. Of every four events, one ends a job, one submits a job, one starts a job on its
// offer, and one changes a node's state, which a later event restores.
type events struct {
	*rand.Rand
	snapshot Snapshot
	gpus     [][]place.GPU // by node
	n        int
	down     int // the node whose state has changed, or -1
	last     uint32
}

func newEvents(b *testing.B, nodes, jobs int) *events {
	e := &events{Rand: rand.New(rand.NewPCG(2, 2)), snapshot: crowd(b, nodes, jobs, 0.9, 0), down: -1, last: 1 << 20}
	q := &e.snapshot.Queue
	for k := range q.Waiting {
		w := &q.Waiting[k]
		w.Submit, w.Reason, w.Name = time.Unix(1e9-int64(len(q.Waiting)-k), 0), "Priority", "train"
		w.User, w.Account, w.UID = "alice", "physics", 1000
		w.AdminComment = fmt.Sprint(tags.Key, "0123456789abcdef ", tags.RunTime, 60*(1+k%600))
	}
	for k := range e.snapshot.Nodes {
		n := &e.snapshot.Nodes[k]
		state, err := Parse(StateIn(n.Extra))
		if err != nil {
			b.Fatal(err)
		}
		e.gpus = append(e.gpus, state.GPUs)
		for _, g := range state.GPUs {
			for i := range g.Busy.Indices() {
				e.run(n.Name, g.Model.ProfileOf(i), time.Unix(int64(g.Ends[i]), 0))
			}
		}
	}
	return e
}

// run adds a running job with one slice.
func (e *events) run(node, profile string, end time.Time) {
	e.last++
	j := waits(e.last, profile, 1, 1).Job
	j.State, j.Start, j.End, j.Nodes = "RUNNING", e.snapshot.At, end, []string{node}
	j.Submit, j.CPUs = time.Unix(1e9-86400, 0).Add(time.Duration(e.last)*time.Millisecond), 1
	e.snapshot.Queue.All = append(e.snapshot.Queue.All, *j)
}

// next changes the cluster by one event. v and p are the view and the plan before the event.
func (e *events) next(v *View, p offer.Plan) {
	e.n++
	e.snapshot.At = e.snapshot.At.Add(500 * time.Millisecond)
	q := &e.snapshot.Queue
	switch e.n % 4 {
	case 0: // a job ends
		k := e.IntN(len(q.All))
		node := q.All[k].Nodes[0]
		q.All = slices.Delete(q.All, k, k+1)
		m := slices.IndexFunc(e.snapshot.Nodes, func(n slurm.Node) bool { return n.Name == node })
		for g := range e.gpus[m] {
			for i := range e.gpus[m][g].Busy.Indices() {
				e.gpus[m][g].Busy = e.gpus[m][g].Busy.Without(i)
				e.publish(m)
				return
			}
		}
	case 1: // a job is submitted
		e.last++
		w := q.Waiting[e.IntN(len(q.Waiting))].Clone()
		w.ID, w.Submit = e.last, e.snapshot.At
		q.Waiting = append(q.Waiting, w)
	case 2: // a job starts
		k := slices.IndexFunc(p.Spots, func(spots []offer.Spot) bool { return spots != nil })
		if k < 0 {
			return
		}
		at := p.Spots[k][0]
		m := slices.IndexFunc(e.snapshot.Nodes, func(n slurm.Node) bool {
			return n.Name == v.Members[v.Pool.GPU(at.GPU).Node].Name
		})
		end := e.snapshot.At.Add(v.Waiting[k].TimeLimit)
		g := v.Pool.GPU(at.GPU)
		e.gpus[m][at.GPU-v.Nodes[g.Node][0]].Hold(at.Placement, float64(end.Unix()))
		e.run(e.snapshot.Nodes[m].Name, v.Waiting[k].PerNode[0].Type, end)
		id := v.Waiting[k].ID
		q.Waiting = slices.DeleteFunc(q.Waiting, func(w slurm.Waiting) bool { return w.ID == id })
		e.publish(m)
	case 3: // a node's state changes
		if e.down >= 0 {
			e.snapshot.Nodes[e.down].States = []string{"IDLE"}
			e.down = -1
			return
		}
		e.down = e.IntN(len(e.snapshot.Nodes))
		e.snapshot.Nodes[e.down].States = []string{"MIXED", "DRAIN"}
	}
}

// publish writes the state of a node's GPUs into the node's Extra.
func (e *events) publish(m int) {
	text := Text(State{GPUs: e.gpus[m], Since: e.snapshot.At})
	e.snapshot.Nodes[m].Extra = WithState(e.snapshot.Nodes[m].Extra, text)
}

// answer returns a copy of the snapshot that, like slurmctld's answers, shares no strings with earlier copies.
func (e *events) answer() Snapshot {
	s := e.snapshot
	s.Nodes = slices.Clone(s.Nodes)
	for k := range s.Nodes {
		n := &s.Nodes[k]
		n.Name, n.Extra = strings.Clone(n.Name), strings.Clone(n.Extra)
		n.States, n.Partitions = cloneAll(n.States), cloneAll(n.Partitions)
	}
	s.Queue.Waiting, s.Queue.All = slices.Clone(s.Queue.Waiting), slices.Clone(s.Queue.All)
	for k := range s.Queue.Waiting {
		w := &s.Queue.Waiting[k]
		*w = w.Clone()
		w.State, w.Reason, w.Partition = strings.Clone(w.State), strings.Clone(w.Reason), strings.Clone(w.Partition)
		w.AdminComment, w.PerNode = strings.Clone(w.AdminComment), slices.Clone(w.PerNode)
		w.Name, w.User, w.Account = strings.Clone(w.Name), strings.Clone(w.User), strings.Clone(w.Account)
		s.Queue.All = append(s.Queue.All, *w.Job)
	}
	return s
}

func cloneAll(texts []string) (all []string) {
	for _, t := range texts {
		all = append(all, strings.Clone(t))
	}
	return all
}
