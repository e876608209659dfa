package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// powered emulates a slurmctld with a node that is powered down. starts, if set, is called after the first write.
type powered struct {
	queue
	writes       []string
	starts       func(*slurm.Node)
	unregistered bool
}

func (p *powered) Node(ctx context.Context, name string) (slurm.Node, error) {
	n, err := p.queue.Node(ctx, name)
	n.Unregistered = n.Unregistered || p.unregistered
	return n, err
}

func (p *powered) SetNodeGRES(ctx context.Context, name string, gres slurm.GRESList) error {
	var counts []string
	for _, g := range gres.Named("mig") {
		if g.Count > 0 {
			counts = append(counts, fmt.Sprint(g.Type, ":", g.Count))
		}
	}
	p.writes = append(p.writes, strings.Join(counts, ","))
	p.queue.SetNodeGRES(ctx, name, gres)
	if p.starts != nil {
		p.starts(&p.node)
	}
	return nil
}

var tightestFirst = plan.Settings{Policy: place.Reach, Tightest: true}

// TestOffersOfAPoweredDownNode checks which offers the planner writes for a node that is powered down, and that it
// first withdraws offers and then adds others.
func TestOffersOfAPoweredDownNode(t *testing.T) {
	for _, c := range []struct {
		what, states, has, placements string
		jobs                          []string
		starts                        func(*slurm.Node)
		writes                        string
		unregistered                  bool // when the planner reads the node before it writes
	}{
		{what: "no job waits", states: "IDLE+POWERED_DOWN", has: "mig:closed:28"},
		{what: "the offers of the agent are withdrawn", states: "IDLE+POWERED_DOWN",
			has: "mig:3g.20gb:1,mig:closed:27", writes: "closed:28"},
		{what: "a job waits, whatever was on the GPU", states: "IDLE+POWERED_DOWN", has: "mig:closed:28",
			placements: "1g.5gb@0", jobs: []string{"mig:7g.40gb:1"}, writes: "7g.40gb:1,closed:27"},
		{what: "another profile", states: "IDLE+POWERED_DOWN", has: "mig:3g.20gb:2,mig:closed:26",
			jobs:   []string{"mig:3g.20gb:1", "mig:4g.20gb:1"},
			writes: "3g.20gb:1,closed:27 3g.20gb:1,4g.20gb:1,closed:26"},
		{what: "a job starts after the first write", states: "IDLE+POWERED_DOWN", has: "mig:3g.20gb:2,mig:closed:26",
			jobs: []string{"mig:3g.20gb:1", "mig:4g.20gb:1"}, writes: "3g.20gb:1,closed:27",
			starts: func(n *slurm.Node) {
				n.States, n.GresUsed = []string{"MIXED", "POWERED_DOWN"}, gres(t, "mig:3g.20gb:1")
			}},
		{what: "a job has the node", states: "MIXED+POWERED_DOWN", has: "mig:3g.20gb:1,mig:closed:27"},
		{what: "the node boots", states: "IDLE+POWERING_UP+NOT_RESPONDING", has: "mig:3g.20gb:1,mig:closed:27"},
		{what: "the node did not boot", states: "DOWN+POWERED_DOWN", has: "mig:7g.40gb:1,mig:closed:27",
			jobs: []string{"mig:7g.40gb:1"}, writes: "closed:28"},
		{what: "slurmctld has evaluated the job, but not started it yet", states: "IDLE+POWERED_DOWN",
			has: "mig:7g.40gb:1,mig:closed:27", jobs: []string{"mig:7g.40gb:1"}},
		{what: "slurmctld has restarted before the write", states: "IDLE+POWERED_DOWN", has: "mig:closed:28",
			jobs: []string{"mig:7g.40gb:1"}, unregistered: true},
		{what: "an agent runs there", states: "IDLE", has: "mig:closed:28", jobs: []string{"mig:7g.40gb:1"}},
	} {
		f := &powered{starts: c.starts}
		f.node = node(t, "n1", c.placements, c.has, "")
		f.node.States = strings.Split(c.states, "+")
		f.node.Extra = strings.Replace(f.node.Extra, "since/-62135596800", "since/1000000000", 1)
		for k, wants := range c.jobs {
			w := job(t, uint32(k+1), wants)
			w.Reason, w.LastSchedEval = "Resources", time.Now()
			f.waiting = append(f.waiting, w)
		}
		f.unregistered = c.unregistered
		cfg := Config{Planner: true, Settings: tightestFirst, Name: "ctl", TriggerFile: t.TempDir() + "/t"}
		w := New(cfg, f, quiet())
		for range 4 { // in its first round, the planner does not know yet whether it is the only one
			if _, err := w.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(f.writes, " "); got != c.writes {
			t.Errorf("%s: wrote %q, want %q", c.what, got, c.writes)
		}
	}
}

// TestHeldJobForAPoweredDownNode checks that the agent of the first node releases a held job that is planned on a node
// that is powered down, once that node offers its slices.
func TestHeldJobForAPoweredDownNode(t *testing.T) {
	for offered, has := range map[bool]string{false: "mig:closed:28", true: "mig:7g.40gb:1,mig:closed:27"} {
		on := node(t, "n2", "4g.20gb@0", "mig:closed:28", "gpu:a100:1")
		off := node(t, "n1", "", has, "")
		off.States = []string{"IDLE", "POWERED_DOWN"}
		held := job(t, 1, "mig:7g.40gb:1")
		held.Priority, held.Reason, held.AdminComment = 0, "JobHeldUser", tags.Held
		snapshot := snapshotOf([]slurm.Node{off, on}, held)
		v := plan.New(snapshot, tightestFirst, nil)
		p := newPlanner(nil, quiet(), "ctl", func() time.Time { return snapshot.At })
		own := p.partOf(snapshot, v, v.Plan(), 0, "n1")
		released := slices.Contains(own.Held, 1) && slices.ContainsFunc(own.Jobs, func(j part.Job) bool {
			return j.ID == 1 && j.Spots == nil
		})
		if v.Members[0].Name != "n2" || released != offered {
			t.Errorf("offered %v: first %s, part %+v", offered, v.Members[0].Name, own)
		}
		var c notifications
		c.due(snapshot, v, v.Plan(), nil)
		if strings.Contains(c.notified["n2"], " release 1") != offered {
			t.Errorf("offered %v: n2 is notified for the reason %q", offered, c.notified["n2"])
		}
	}
}

// TestManyHeldJobs checks the maximum number of jobs in a part, and that different jobs are in the next one.
func TestManyHeldJobs(t *testing.T) {
	var waiting []slurm.Waiting
	for id := range uint32(3 * maxHeld) {
		w := job(t, id+1, "mig:7g.40gb:1")
		w.AdminComment = tags.Held // an agent must replace the tag of a job that has been released
		if id%2 == 1 {
			w.AdminComment, w.HetJob, w.HetJobs = "", id+1, []uint32{id + 1, 1000}
		}
		waiting = append(waiting, w)
	}
	snapshot := snapshotOf([]slurm.Node{node(t, "n1", "", "mig:closed:28", "")}, waiting...)
	v := plan.New(snapshot, tightestFirst, nil)
	p := newPlanner(nil, quiet(), "ctl", func() time.Time { return snapshot.At })
	first := p.partOf(snapshot, v, v.Plan(), 0, "n1")
	p.count++
	second := p.partOf(snapshot, v, v.Plan(), 0, "n1")
	if len(first.Held) != maxHeld || len(first.Stray) != maxHeld || slices.Equal(first.Held, second.Held) {
		t.Errorf("held %v, then %v; %d strays", first.Held, second.Held, len(first.Stray))
	}
}
