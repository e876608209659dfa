package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/core/offer"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// growingFractions is a world with a running job that may grow, on a fraction of one unit.
type growingFractions struct {
	*growing
	f  fractional // the same world
	id uint32
}

func newGrowingFractions(t *testing.T, options ...func(*config.Config)) growingFractions {
	f := newFractional(t, 1, append(options, func(c *config.Config) { c.GrowLimit = 3 })...)
	g := growingFractions{&growing{world: f.world}, f, 0}
	g.restart()
	g.id = g.submit(growingJob("1f.11gb", "forecast"))
	if profile, _ := g.runs(g.id); profile != "1f.11gb" {
		t.Fatal(profile)
	}
	return g
}

// foresees makes the job's forecast exceed its memory, and returns the job's lease and record.
func (g growingFractions) foresees(mib float64) (l api.Lease, j struct{ State, Grown string }) {
	g.t.Helper()
	a := g.agent
	a.growBeforeFailure(context.Background(), g.id, mib)
	g.fake.RunEpilogs()
	job, err := g.fake.Job(context.Background(), g.id)
	if err != nil {
		g.t.Fatal(err)
	}
	a.node.Lock()
	defer a.node.Unlock()
	if now := a.node.Leases[g.id]; now != nil {
		l = *now
	}
	j.State, j.Grown = job.State, tags.Value(job.AdminComment, tags.Grown)
	return l, j
}

// has checks that the job is running with the given fraction as its limit, in the lease, the ledger and the lease file.
func (g growingFractions) has(profile string, units int) {
	t := g.t
	t.Helper()
	a := g.agent
	l, err := a.Job(context.Background(), g.id)
	if err != nil || len(l.Slices) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	s, stored := l.Slices[0], api.Lease{}
	all, _ := a.ledger.Leases()
	for _, one := range all {
		if one.Job == g.id {
			stored = one
		}
	}
	limit, _, _ := g.f.limits.Limit(0, l.Cgroup.Path)
	text, _ := os.ReadFile(a.leaseFile(g.id))
	if s.Profile != profile || s.Size != units || s.MemoryMiB != uint64(units)*11389 || limit != s.MemoryMiB<<20 ||
		stored.Slices[0].Profile != profile || stored.Slices[0].AdvertisedAs != s.AdvertisedAs ||
		!strings.Contains(string(text), fmt.Sprintf("slot 0 %s/%d\n", s.UUID, units)) {
		t.Errorf("want %s: limit %d MiB, %+v, in the ledger %+v, file:\n%s", profile, limit>>20, s, stored, text)
	}
	if counted := map[string]string{"1f.11gb": ""}; s.AdvertisedAs != "1f.11gb" && profile != "1f.11gb" ||
		profile == "1f.11gb" && s.AdvertisedAs != counted[profile] {
		t.Errorf("slurmctld counts %q", s.AdvertisedAs)
	}
	if state := g.state(g.id); state != "RUNNING" {
		t.Errorf("the job is %s", state)
	}
}

// TestGrowInPlace checks that a running job gets a larger fraction without a requeue, that its neighbour keeps its own,
// that the offers are lower then, and that the agent still knows the size after a restart.
func TestGrowInPlace(t *testing.T) {
	g := newGrowingFractions(t)
	neighbour := g.lease(g.startNow("1f.11gb:1"))
	g.f.finish(g.lease(g.startNow("1f.11gb:1")).Job) // leaves an idle fraction
	g.publish()
	before := g.offers()
	uuid := g.agent.leaseOf(g.id).Slices[0].UUID
	l, j := g.foresees(15000)
	if j.State != "RUNNING" || j.Grown != "" || l.Restart != 0 || l.Slices[0].UUID != uuid {
		t.Fatalf("%+v, %+v", l, j)
	}
	g.has("2f.22gb", 2)
	if got := g.offers(); got["2f.22gb"] != 0 || got["1f.11gb"] > 1 || before["2f.22gb"]+before["1f.11gb"] == 0 {
		t.Errorf("on offer: %v, before %v", got, before)
	}
	if limit, _, _ := g.f.limits.Limit(0, neighbour.Cgroup.Path); limit != 11389<<20 {
		t.Errorf("the neighbour's limit is %d", limit)
	}
	for _, lost := range []bool{false, true} {
		g.world.stop()
		if lost {
			g.removeLedger()
		}
		g.f.limits.SetLimit(0, l.Cgroup.Path, gpu.NoLimit)
		g.restart()
		if now := g.agent.leaseOf(g.id); now == nil || now.Slices[0].MemoryMiB != 22778 || now.Slices[0].UUID != uuid {
			t.Fatalf("ledger lost %v: %+v", lost, now)
		}
		if limit, _, _ := g.f.limits.Limit(0, l.Cgroup.Path); limit != 22778<<20 {
			t.Errorf("ledger lost %v: the limit is %d", lost, limit)
		}
		if err := g.agent.completeLeases(context.Background()); err != nil {
			t.Fatal(err)
		}
		if as := g.agent.leaseOf(g.id).Slices[0].AdvertisedAs; as != "1f.11gb" {
			t.Errorf("ledger lost %v: slurmctld counts %q", lost, as)
		}
	}
	g.f.finish(g.id)
	g.f.finish(neighbour.Job)
	if l := g.lease(g.startNow("full:1")); len(l.Slices) != 1 {
		t.Errorf("%+v", l)
	}
}

// TestGrowInPlaceFails checks that a job whose limit the driver does not raise keeps its fraction and is requeued.
func TestGrowInPlaceFails(t *testing.T) {
	g := newGrowingFractions(t)
	g.f.limits.Fail(errors.New("broken"))
	a := g.agent
	if a.growInPlace(context.Background(), *a.leaseOf(g.id), needOf(15000)) {
		t.Error("the fraction has grown")
	}
	g.f.limits.Fail(nil)
	g.has("1f.11gb", 1)
	g.f.limits.Fail(errors.New("broken"))
	g.fake.After(nil)
	_, j := g.foresees(15000)
	g.f.limits.Fail(nil)
	if j.State != "PENDING" || j.Grown != "1f.11gb:forecast:15000" {
		t.Errorf("%+v", j)
	}
}

// TestKilledWhileGrowing stops the agent after it has published lower offers, and after the ledger has the larger size
// and before the driver has the limit. The next agent sets the limit and writes the lease file, from which a lost
// ledger is restored.
func TestKilledWhileGrowing(t *testing.T) {
	g := newGrowingFractions(t)
	g.publish()
	before := fmt.Sprint(g.offers())
	for _, killed := range []string{"reserved", "relabelled"} {
		a := g.agent
		in := a.node.Held(g.id, a.leaseOf(g.id).Slices[0])
		growth := &state.Growth{Instance: in, Profile: "2f.22gb"}
		if !a.node.Reserve(growth) {
			t.Fatal("no room")
		}
		g.publish()
		if got := fmt.Sprint(g.offers()); got == before {
			t.Errorf("on offer while the job grows: %s", got)
		}
		if killed == "relabelled" {
			if done, err := a.repack(0, growth); !done || err != nil {
				t.Fatal(done, err)
			}
		}
		g.world.stop()
		g.restart()
		if killed == "reserved" {
			g.has("1f.11gb", 1)
			g.publish()
			if got := fmt.Sprint(g.offers()); got != before {
				t.Errorf("on offer: %s, before %s", got, before)
			}
		}
	}
	l := g.agent.leaseOf(g.id)
	now := g.agent.leaseOf(g.id)
	limit, _, _ := g.f.limits.Limit(0, l.Cgroup.Path)
	if now.Slices[0].Profile != "2f.22gb" || now.Slices[0].AdvertisedAs != "1f.11gb" || limit != 22778<<20 {
		t.Errorf("limit %d, %+v", limit, now)
	}
	if text := g.leaseFile(g.id); !strings.Contains(text, now.Slices[0].UUID+"/2\n") {
		t.Errorf("lease file:\n%s", text)
	}
}

// sinceOldLedger holds what happens to four jobs, each with a quarter of the GPU, after the ledger was copied.
var sinceOldLedger = map[string]func(growingFractions){
	"a fraction has grown": func(g growingFractions) {
		g.end(1)
		g.foresees(15000)
		g.has("2f.22gb", 2)
	},
	"grown, and a lost lease": func(g growingFractions) {
		g.end(1, 2, 3)
		g.foresees(15000)
		g.uid = 20009
		g.lease(g.startNow("2f.22gb:1"))
	},
	"units that were apart": func(g growingFractions) {
		g.end(1, 3)
		g.uid = 20009
		g.lease(g.startNow("2f.22gb:1"))
	},
	"two lost leases of different sizes": func(g growingFractions) {
		g.end(1, 2, 3)
		for k, size := range []string{"1f.11gb:1", "2f.22gb:1"} {
			g.uid = 20009 + uint32(k)
			g.lease(g.startNow(size))
		}
	},
	"a full GPU": func(g growingFractions) {
		g.end(1, 2, 3)
		g.f.finish(g.id)
		g.uid = 20009
		g.lease(g.startNow("full:1"))
	},
}

// TestOldLedgerOfFractions starts an agent with a ledger from when other jobs held the units of the running ones. The
// agent must keep the sizes in the lease files, and forget the jobs that have ended.
func TestOldLedgerOfFractions(t *testing.T) {
	for name, since := range sinceOldLedger {
		t.Run(name, func(t *testing.T) {
			g := newGrowingFractions(t)
			for uid := range uint32(3) {
				g.uid = 20002 + uid
				g.lease(g.startNow("1f.11gb:1"))
			}
			g.world.stop()
			saved, err := os.ReadFile(g.ledgerFile())
			if err != nil {
				t.Fatal(err)
			}
			g.restart()
			since(g)
			want, files := g.holders(), g.leaseFiles()
			g.world.stop()
			g.removeLedger()
			if err := os.WriteFile(g.ledgerFile(), saved, 0o600); err != nil {
				t.Fatal(err)
			}
			g.restart()
			if got := g.holders(); got != want {
				t.Errorf("held before: %s\nnow: %s\nlog: %s", want, got, g.log.String())
			}
			if got := g.leaseFiles(); got != files {
				t.Errorf("lease files before:\n%snow:\n%s", files, got)
			}
			if err := g.agent.completeLeases(t.Context()); err != nil {
				t.Error(err)
			}
			if l := g.agent.leaseOf(g.id); l != nil && l.Slices[0].Size == 2 && l.Slices[0].AdvertisedAs != "1f.11gb" {
				t.Errorf("slurmctld counts %+v", l)
			}
			g.publish()
		})
	}
}

// end ends the jobs whose fractions of one unit are at the given distances from the growing job's. 1 is the other half
// of its block of two units.
func (g growingFractions) end(distances ...int) {
	g.t.Helper()
	start := g.agent.leaseOf(g.id).Slices[0].Start
	var ids []uint32
	for id, l := range g.leases() {
		if slices.Contains(distances, l.Slices[0].Start^start) {
			ids = append(ids, id)
		}
	}
	if len(ids) != len(distances) {
		g.t.Fatalf("jobs %v at the distances %v", ids, distances)
	}
	for _, id := range ids {
		g.f.finish(id)
	}
}

// leases returns a copy of the agent's leases.
func (g growingFractions) leases() map[uint32]*api.Lease {
	g.agent.node.Lock()
	defer g.agent.node.Unlock()
	return maps.Clone(g.agent.node.Leases)
}

// holders describes the fractions of all jobs, their limits, and the users of the device file.
func (g growingFractions) holders() string {
	g.t.Helper()
	var all []string
	for id, l := range g.leases() {
		var in *state.Instance
		if len(l.Slices) == 1 {
			in = g.agent.node.Held(id, l.Slices[0])
		}
		if in == nil {
			g.t.Fatalf("job %d does not hold the slices of %+v", id, l)
		}
		limit, _, _ := g.f.limits.Limit(0, l.Cgroup.Path)
		all = append(all, fmt.Sprintf("job %d of %d: %s, %s, limit %d", id, l.UID, in.UUID, in.Profile, limit>>20))
	}
	slices.Sort(all)
	uids, err := listed(g.agent.caps.DeviceFile(0))
	return fmt.Sprint(strings.Join(all, "; "), "; users ", uids, err, ", owner and mode ", g.file(0))
}

// leaseFiles returns the contents of all lease files.
func (g growingFractions) leaseFiles() (all string) {
	for _, id := range slices.Sorted(maps.Keys(g.leases())) {
		all += g.leaseFile(id)
	}
	return all
}

// TestNoRoomToGrow checks that a fraction does not grow into units that a neighbour holds, that are set aside, or that
// are promised to a starting job. The job is then requeued.
func TestNoRoomToGrow(t *testing.T) {
	for name, take := range map[string]func(growingFractions){
		"held": func(g growingFractions) { g.lease(g.startNow("2f.22gb:1")) },
		"set aside": func(g growingFractions) {
			l := g.lease(g.startNow("2f.22gb:1"))
			g.f.groups.Enter(l.Cgroup, true)
			g.f.finish(l.Job)
		},
		"pending": func(g growingFractions) {
			n := g.agent.node
			n.Lock()
			defer n.Unlock()
			n.Pending[99] = &state.PendingLease{Wants: []offer.Want{{Profile: "2f.22gb", Count: 1}}}
			n.Pending[99].Leasing = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrowingFractions(t)
			g.lease(g.startNow("1f.11gb:1"))
			take(g)
			g.publish()
			if _, j := g.foresees(15000); j.State != "PENDING" || j.Grown != "1f.11gb:forecast:15000" {
				t.Errorf("%+v", j)
			}
		})
	}
}

// TestReservedUnits checks that a fraction does not grow on a GPU that has units reserved for a waiting job.
func TestReservedUnits(t *testing.T) {
	g := newGrowingFractions(t)
	n := g.agent.node
	n.Lock()
	n.Reserved = &api.Reservation{Slices: []api.ReservedSlice{{GPU: 0}}}
	n.Unlock()
	if _, j := g.foresees(15000); j.State != "PENDING" || j.Grown != "1f.11gb:forecast:15000" {
		t.Errorf("%+v", j)
	}
}

// TestCompaction checks that a fraction of two units starts although the two free units are apart, beside jobs that
// keep their limits and cgroups.
func TestCompaction(t *testing.T) {
	f := newFractional(t, 1)
	var ls []api.Lease
	for range 4 {
		ls = append(ls, f.lease(f.startNow("1f.11gb:1")))
	}
	at := map[int]api.Lease{}
	for _, l := range ls {
		at[l.Slices[0].Start] = l
	}
	f.finish(at[0].Job)
	f.finish(at[2].Job)
	f.publish()
	l := f.lease(f.startNow("2f.22gb:1"))
	if len(l.Slices) != 1 || l.Slices[0].Profile != "2f.22gb" {
		t.Fatalf("%+v", l)
	}
	used := 3 << l.Slices[0].Start
	for _, start := range []int{1, 3} {
		stays := at[start]
		now := f.agent.leaseOf(stays.Job)
		limit, _, _ := f.limits.Limit(0, stays.Cgroup.Path)
		if limit != 11389<<20 || now.Slices[0].UUID != stays.Slices[0].UUID {
			t.Errorf("limit %d, %+v, before %+v", limit, now, stays)
		}
		if bit := 1 << now.Slices[0].Start; used&bit != 0 {
			t.Errorf("two jobs hold unit %d", now.Slices[0].Start)
		} else {
			used |= bit
		}
	}
	f.stop()
	f.start()
	if all, err := f.agent.hw.Instances(0); len(all) != 3 || err != nil {
		t.Errorf("after a restart: %+v, %v", all, err)
	}
	for _, job := range []uint32{at[1].Job, at[3].Job, l.Job} {
		f.finish(job)
	}
	f.users(0)
}

func needOf(mib float64) predict.Need { return predict.Need{PeakMiB: mib, HighestMiB: mib} }
