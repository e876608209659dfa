package slurmtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/slurm"
)

// controller is the set of methods that the Fake and the real client share.
type controller interface {
	Node(ctx context.Context, name string) (slurm.Node, error)
	Nodes(ctx context.Context) ([]slurm.Node, error)
	NamedNodes(ctx context.Context, names ...string) ([]slurm.Node, error)
	UpdateNode(ctx context.Context, node string, gres slurm.GRESList, extra string) error
	SetNodeExtra(ctx context.Context, node, text string) error
	Queue(ctx context.Context) (slurm.Queue, error)
	Jobs(ctx context.Context) ([]slurm.Job, error)
	Job(ctx context.Context, id uint32) (slurm.Job, error)
	Config(ctx context.Context) (slurm.Config, error)
	RequeueHold(ctx context.Context, id uint32) error
	RequeueFailed(ctx context.Context, id uint32) error
	Hold(ctx context.Context, id uint32) error
	Release(ctx context.Context, id uint32) error
	SetJobGRES(ctx context.Context, id uint32, gres slurm.GRESList) error
	SetAdminComment(ctx context.Context, id uint32, text string) error
}

var _, _ controller = (*Fake)(nil), (*slurm.Client)(nil)

func gres(t testing.TB, s string) slurm.GRESList {
	t.Helper()
	list, err := slurm.ParseGRES(s)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

const closed = "gpu:a100:14,mig:1g.5gb:0,mig:2g.10gb:0,mig:3g.20gb:0,mig:7g.40gb:0,mig:closed:28"

func testNodes(t testing.TB) []Node {
	most := gres(t, "gpu:a100:14,mig:1g.5gb:14,mig:2g.10gb:6,mig:3g.20gb:4,mig:7g.40gb:2,mig:closed:28")
	return []Node{
		{Name: "n1", Partitions: []string{"gpu"}, Features: []string{"a100"}, Gres: gres(t, closed)},
		{Name: "n2", Partitions: []string{"gpu"}, Features: []string{"a100"}, Gres: gres(t, closed)},
		{Name: "mig-catalog1", Partitions: []string{"gpu"}, Features: []string{"a100"}, Gres: most, Catalogue: true},
	}
}

// TestStory runs commands on a Fake, and prints the nodes and jobs after each command.
func TestStory(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		f := New(testNodes(t)...)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "writes":
				var out string
				for _, c := range f.Writes() {
					out += c.String() + "\n"
				}
				return out
			case "tick":
				return fmt.Sprintln("started", f.Tick()) + draw(t, f)
			}
			if err := command(t, f, d); err != nil {
				return "error: " + err.Error() + "\n"
			}
			return draw(t, f)
		})
	})
}

// arg returns the value of a command's argument, or an empty string if the argument is missing.
func arg(t *testing.T, d *datadriven.TestData, key string) (value string) {
	d.MaybeScanArgs(t, key, &value)
	return value
}

// command runs a command that changes the Fake's state.
func command(t *testing.T, f *Fake, d *datadriven.TestData) error {
	ctx, node := context.Background(), arg(t, d, "node")
	var id uint32
	fmt.Sscan(arg(t, d, "job"), &id)
	switch d.Cmd {
	case "submit":
		_, err := f.Submit(requested(t, d))
		return err
	case "submit-held":
		f.SubmitHeld(requested(t, d))
	case "update":
		return f.UpdateNode(ctx, node, gres(t, d.Input), "")
	case "end":
		return f.End(id)
	case "fail":
		return f.Fail(id)
	case "requeue":
		return f.RequeueFailed(ctx, id)
	case "comment":
		return f.SetAdminComment(ctx, id, d.Input)
	case "cancel":
		return f.Cancel(id)
	case "epilogs":
		f.RunEpilogs()
	case "requeuehold":
		return f.RequeueHold(ctx, id)
	case "hold":
		return f.Hold(ctx, id)
	case "release":
		return f.Release(ctx, id)
	case "set-gres":
		return f.SetJobGRES(ctx, id, gres(t, d.Input))
	case "advance":
		f.Advance(3 * time.Minute)
	case "restart":
		f.Restart()
	case "restart-slurmd":
		return f.RestartSlurmd(node)
	case "drain":
		return f.Drain(node, arg(t, d, "reason"))
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return nil
}

// requested returns the job that a submit command describes.
func requested(t *testing.T, d *datadriven.TestData) slurm.Job {
	j := slurm.Job{
		Name:      arg(t, d, "name"),
		PerNode:   gres(t, d.Input),
		Batch:     !d.HasArg("interactive"),
		Requeue:   true,
		Exclusive: d.HasArg("exclusive"),
	}
	fmt.Sscan(arg(t, d, "nodes"), &j.NumNodes)
	for _, a := range d.CmdArgs {
		if a.Key == "on" {
			j.ReqNodes = a.Vals
		}
	}
	return j
}

func draw(t *testing.T, f *Fake) string {
	ctx := context.Background()
	var b strings.Builder
	for _, name := range []string{"n1", "n2"} {
		n, err := f.Node(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", name, strings.Join(n.States, "+"))
		for i, g := range n.Gres {
			used := 0
			for _, u := range n.GresUsed {
				if u.Name == g.Name && u.Type == g.Type {
					used = u.Count
				}
			}
			if n.Gres[i].Count > 0 || used > 0 {
				fmt.Fprintf(&b, "  %s:%s %d of %d\n", g.Name, g.Type, used, g.Count)
			}
		}
	}
	for id := uint32(1); id <= 9; id++ {
		j, err := f.Job(ctx, id)
		if errors.Is(err, slurm.ErrNoJob) {
			continue // Submit rejected the job
		} else if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "job %d %s %s (%s) restarts=%d", id, j.Name, j.State, j.Reason, j.Restarts)
		for _, n := range j.Nodes {
			fmt.Fprintf(&b, " %s[%s]", n, j.Allocated[n].String())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestWrites checks that Writes leaves out calls that only read.
func TestWrites(t *testing.T) {
	ctx := context.Background()
	f := New(testNodes(t)...)
	f.Node(ctx, "n1")
	f.Nodes(ctx)
	f.Queue(ctx)
	f.Jobs(ctx)
	f.Job(ctx, 1)
	f.Config(ctx)
	if w := f.Writes(); len(w) != 0 {
		t.Errorf("counted as writes: %v", w)
	}
	f.Hold(ctx, 1)
	if w := f.Writes(); len(w) != 1 || w[0].Op != "Hold" {
		t.Errorf("writes: %v, want Hold", w)
	}
}

// TestHooks checks that hooks run between calls and without a lock. A hook may start and end jobs, make calls fail, and
// read the state.
func TestHooks(t *testing.T) {
	ctx := context.Background()
	f := New(testNodes(t)...)
	if err := f.UpdateNode(ctx, "n1", gres(t, "gpu:a100:14,mig:2g.10gb:1,mig:closed:27"), ""); err != nil {
		t.Fatal(err)
	}
	id, err := f.Submit(slurm.Job{PerNode: gres(t, "gpu:1,mig:2g.10gb:1"), Batch: true, Requeue: true})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	f.Prolog(func(j slurm.Job, node string) {
		now, _ := f.Job(ctx, j.ID)
		seen = append(
			seen,
			fmt.Sprint("prolog ", node, " ", now.State, " ", now.Reason, " ", now.Allocated[node].String()),
		)
	})
	f.Epilog(func(j slurm.Job, node string) {
		now, _ := f.Node(ctx, node)
		seen = append(
			seen,
			fmt.Sprint("epilog ", node, " ", strings.Join(now.States, "+"), " ", now.GresUsed.String()),
		)
	})
	f.Before(func(c Call) error {
		switch c.Op {
		case "Queue":
			f.Tick() // the job starts before the client reads the jobs
		case "UpdateNode":
			return slurm.ErrUnreachable
		}
		return nil
	})
	q, err := f.Queue(ctx)
	on := q.On("n1")
	if err != nil || len(on) != 1 || on[0].ID != id {
		t.Errorf("%v %v", on, err)
	}
	if err := f.UpdateNode(ctx, "n1", gres(t, closed), ""); !errors.Is(err, slurm.ErrUnreachable) {
		t.Error(err)
	}
	if n, _ := f.Node(ctx, "n1"); n.Gres.String() != "gpu:a100:14,mig:2g.10gb:1,mig:closed:27" {
		t.Errorf("a failed write changed %v", n.Gres)
	}
	if err := f.Finish(id); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"prolog n1 RUNNING Prolog gpu:a100:1,mig:2g.10gb:1",
		"epilog n1 IDLE+COMPLETING gpu:a100:0,mig:1g.5gb:0,mig:2g.10gb:0,mig:3g.20gb:0,mig:7g.40gb:0,mig:closed:0",
	}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("the hooks recorded %q", seen)
	}
}

// TestConcurrent checks that several goroutines never make the Fake allocate a slice twice. The race detector checks
// the locks.
func TestConcurrent(t *testing.T) {
	ctx := context.Background()
	f := New(testNodes(t)...)
	offer := gres(t, "gpu:a100:14,mig:1g.5gb:3,mig:closed:25")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				f.UpdateNode(ctx, "n1", offer, "")
				f.Submit(
					slurm.Job{PerNode: []slurm.GRES{{Name: "gpu", Count: 1}, {Name: "mig", Type: "1g.5gb", Count: 1}}},
				)
				f.Tick()
				n, _ := f.Node(ctx, "n1")
				for _, u := range n.GresUsed {
					if u.Type == "1g.5gb" && u.Count > 3 {
						t.Errorf("%d slices used, but only 3 exist", u.Count)
					}
				}
				q, _ := f.Queue(ctx)
				on := q.On("n1")
				for _, j := range on {
					f.Finish(j.ID)
				}
			}
		})
	}
	wg.Wait()
}

// TestEpilogRunsOnce calls RunEpilogs while another call runs a job's epilog. The epilog must run only once.
func TestEpilogRunsOnce(t *testing.T) {
	f := New(Node{Name: "n1", Partitions: []string{"gpu"}})
	id, err := f.Submit(slurm.Job{Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	f.Tick()
	var runs atomic.Int32
	began, end := make(chan struct{}), make(chan struct{})
	f.Epilog(func(slurm.Job, string) {
		if runs.Add(1) == 1 {
			close(began)
		}
		<-end
	})
	if err := f.End(id); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	calls.Go(f.RunEpilogs)
	<-began
	calls.Go(f.RunEpilogs)
	time.Sleep(100 * time.Millisecond) // the second call would run the epilog now
	close(end)
	calls.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("the epilog ran %d times", n)
	}
}
