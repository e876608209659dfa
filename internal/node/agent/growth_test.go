package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"caelum/internal/core/offer"
	"caelum/internal/node/state"
	"caelum/internal/slurm/slurmtest"
)

// TestStartWhileGrowing makes slurmctld start a job on the units that another one is about to get. The starting job
// takes precedence, because slurmctld has counted its slice.
func TestStartWhileGrowing(t *testing.T) {
	for _, op := range []string{"Queue", "UpdateNode"} { // a call of the pass that lowers the offers
		t.Run("before "+op, func(t *testing.T) {
			g := newGrowingFractions(t)
			g.lease(g.startNow("1f.11gb:1"))
			id := g.submit(job(1, "2f.22gb:1"))
			g.publish()
			started := false
			g.fake.Before(func(c slurmtest.Call) error {
				if c.Op == op && !started {
					started = true
					g.fake.Tick()
				}
				return nil
			})
			_, j := g.foresees(15000)
			g.publish()
			if l := g.lease(id); len(l.Slices) != 1 || l.Restart != 0 || g.state(id) != "RUNNING" || !started {
				t.Errorf("the starting job is %s with %+v", g.state(id), l)
			}
			if j.State != "PENDING" || j.Grown != "1f.11gb:forecast:15000" {
				t.Errorf("the growing job: %+v", j)
			}
		})
	}
}

// TestGrowBeforeWaiting checks that a fraction grows into units that are on offer for a waiting job.
func TestGrowBeforeWaiting(t *testing.T) {
	g := newGrowingFractions(t)
	g.lease(g.startNow("1f.11gb:1"))
	id := g.submit(job(1, "2f.22gb:1"))
	g.publish()
	if before := g.offers(); before["2f.22gb"] != 1 {
		t.Fatalf("on offer: %v", before)
	}
	g.foresees(15000)
	g.has("2f.22gb", 2)
	if g.fake.Tick(); g.state(id) != "PENDING" || g.offers()["2f.22gb"] != 0 {
		t.Errorf("the waiting job is %s, on offer: %v", g.state(id), g.offers())
	}
}

// TestGrowthNotPublished checks that a fraction does not grow while slurmctld does not accept lower offers, and that
// its units are then offered again.
func TestGrowthNotPublished(t *testing.T) {
	g := newGrowingFractions(t)
	g.publish()
	before := fmt.Sprint(g.offers())
	g.failing(1, errors.New("refused"), "UpdateNode")
	if g.agent.growInPlace(context.Background(), *g.agent.leaseOf(g.id), needOf(15000)) {
		t.Error("the fraction has grown")
	}
	g.has("1f.11gb", 1)
	g.publish()
	if got := fmt.Sprint(g.offers()); got != before {
		t.Errorf("on offer: %s, before %s", got, before)
	}
	if l, _ := g.foresees(15000); l.Slices[0].Profile != "2f.22gb" {
		t.Errorf("the next forecast: %+v", l)
	}
}

// TestDriverHangsWhileGrowing checks that a growth ends with its context while a call of the driver hangs, so that the
// job's epilog and the growths on other GPUs do not wait for this call.
func TestDriverHangsWhileGrowing(t *testing.T) {
	g := newGrowingFractions(t)
	c := g.agent.node.Cards[0]
	c.Hardware.Lock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if g.agent.growInPlace(ctx, *g.agent.leaseOf(g.id), needOf(15000)) {
		t.Error("the fraction has grown")
	}
	c.Hardware.Unlock()
	g.has("1f.11gb", 1)
}

// agree checks that the ledger, the driver's wrapper and the node have the same fractions, and that none overlap.
func (g growingFractions) agree() {
	t := g.t
	t.Helper()
	list := func(gi int, profile string, start int) string { return fmt.Sprintf("%d %s at %d", gi, profile, start) }
	var stored, exist, ours []string
	all, err := g.agent.ledger.Instances()
	for _, in := range all {
		stored = append(stored, list(in.GI, in.Profile, in.Start))
	}
	found, foundErr := g.agent.hw.Instances(0)
	used := uint64(0)
	for _, in := range found {
		exist = append(exist, list(in.GI, in.Profile, in.Start))
		if used&in.Units() != 0 {
			t.Errorf("%+v overlap", found)
		}
		used |= in.Units()
	}
	n := g.agent.node
	n.Lock()
	defer n.Unlock()
	for p, in := range n.Cards[0].Ours {
		pl := n.Cards[0].Model.Placements[p]
		ours = append(ours, list(in.GI, n.Cards[0].Model.ProfileOf(p), pl.Start))
		if in.Profile != n.Cards[0].Model.ProfileOf(p) || in.Start != pl.Start {
			t.Errorf("%+v at placement %d", in, p)
		}
	}
	slices.Sort(stored)
	slices.Sort(exist)
	slices.Sort(ours)
	if err != nil || foundErr != nil || !slices.Equal(stored, exist) || !slices.Equal(stored, ours) ||
		len(n.Cards[0].Foreign) > 0 {
		t.Errorf("ledger %v, wrapper %v, node %v, foreign %v; %v, %v", stored, exist, ours, n.Cards[0].Foreign, err,
			foundErr)
	}
}

// TestLedgerFailsWhileRelabelling checks that the ledger, the driver's wrapper and the node agree after a failed write
// of the ledger: of the second of two fractions that move, of a fraction that grows, and of one whose limit the driver
// does not accept.
func TestLedgerFailsWhileRelabelling(t *testing.T) {
	const fail = "CREATE TRIGGER broken BEFORE UPDATE OF start ON instance WHEN %s BEGIN SELECT RAISE(FAIL, 'EIO'); END"
	for name, when := range map[string]string{
		"second": "OLD.gi = (SELECT max(gi) FROM instance)", "grow": "NEW.size > OLD.size",
		"shrink": "NEW.size < OLD.size",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrowingFractions(t)
			g.lease(g.startNow("1f.11gb:1"))
			g.sql(fmt.Sprintf(fail, when))
			if name == "shrink" {
				g.f.limits.Fail(errors.New("broken"))
			}
			if g.agent.growInPlace(context.Background(), *g.agent.leaseOf(g.id), needOf(15000)) {
				t.Error("the fraction has grown")
			}
			g.agree()
			g.f.limits.Fail(nil)
			g.sql("DROP TRIGGER broken")
			g.publish()
			g.agree()
			g.world.stop()
			g.restart()
			g.agree()
			want := g.agent.leaseOf(g.id).Slices[0].MemoryMiB << 20
			if got, _, _ := g.f.limits.Limit(0, g.agent.leaseOf(g.id).Cgroup.Path); got != want || got == 0 {
				t.Errorf("the limit is %d, want %d", got, want)
			}
		})
	}
}

// idle returns the idle fractions.
func (g growingFractions) idle() (all []*state.Instance) {
	n := g.agent.node
	n.Lock()
	defer n.Unlock()
	for _, in := range n.Cards[0].Ours {
		if in.Idle() {
			all = append(all, in)
		}
	}
	return all
}

// TestUnsettledFraction checks that no fraction moves onto one that the ledger does not have, because it could not be
// written. Until the next comparison settles its intent, the agent does not know it.
func TestUnsettledFraction(t *testing.T) {
	g := newGrowingFractions(t)
	ids := []uint32{g.id}
	for range 3 {
		ids = append(ids, g.lease(g.startNow("1f.11gb:1")).Job)
	}
	const broken = "CREATE TRIGGER %s BEFORE %s ON instance BEGIN SELECT RAISE(FAIL, 'EIO'); END"
	g.sql(fmt.Sprintf(broken, "moves", "UPDATE OF start"))
	ids = slices.DeleteFunc(ids, func(id uint32) bool {
		ends := g.agent.leaseOf(id).Slices[0].Start%2 == 1
		if ends {
			g.f.finish(id)
		}
		return ends
	})
	g.publish()
	g.sql(fmt.Sprintf(broken, "inserts", "INSERT"))
	a := g.agent
	c := a.node.Cards[0]
	c.Hardware.Lock()
	for _, in := range g.idle() {
		if err := a.destroy(0, in, new(spent)); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := c.Model.Placement("1f.11gb", 3)
	if in, err := a.create(99, offer.Spot{GPU: 0, Placement: p}, new(spent)); err == nil {
		t.Fatalf("%+v", in)
	}
	c.Hardware.Unlock()
	g.sql("DROP TRIGGER moves; DROP TRIGGER inserts")
	g.publish()
	for range 2 {
		if err := a.compareGPUs(); err != nil {
			t.Fatal(err)
		}
		g.agree()
		g.publish()
	}
	for _, id := range ids {
		if a.node.Held(id, a.leaseOf(id).Slices[0]) == nil {
			t.Errorf("job %d has lost its fraction", id)
		}
	}
}
