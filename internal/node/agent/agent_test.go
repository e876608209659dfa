package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/node/api"
	"caelum/internal/node/publish"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// TestLifeOfAJob follows a job that needs a slice that the node does not offer. The agent must publish the slice; once
// slurmctld has started the job, the agent must carve the slice and give the capability files to the user. After the
// job has ended, the slice must be idle, the files must belong to root, and the next job that requests the profile must
// get the same slice.
func TestLifeOfAJob(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.publish()
	if w.offers()["7g.40gb"] != 0 {
		t.Fatalf("7g is offered alongside others: %v", w.offers())
	}
	id := w.startNow("7g.40gb:1")
	l := w.lease(id)
	if l.Error != "" || len(l.Slices) != 1 || l.Slices[0].Profile != "7g.40gb" || l.Slices[0].Reused {
		t.Fatalf("lease %+v", l)
	}
	want := fmt.Sprintf(
		"caelum-lease 1\njob %d\nrestart 0\nuid 20001\nindex absolute\nslot 0 %s\nend\n",
		id,
		l.Slices[0].UUID,
	)
	if got := w.leaseFile(id); got != want {
		t.Errorf("lease file:\n%s", got)
	}
	owner := func() uint32 {
		info, err := os.Stat(filepath.Join(w.node.Dev, "nvidia-caps", "nvidia-cap3")) // GI 0 of gpu 0
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if owner() != 20001 {
		t.Errorf("the capability file belongs to uid %d", owner())
	}
	if len(w.offers()) != 0 {
		t.Errorf("offers alongside a whole GPU: %v", w.offers())
	}
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	if owner() != 0 {
		t.Errorf("after the job the capability file belongs to uid %d", owner())
	}
	if _, err := os.Stat(filepath.Join(w.cfg.RunDir, "jobs", fmt.Sprint(id))); !os.IsNotExist(err) {
		t.Errorf("the lease file is still there: %v", err)
	}
	again := w.startNow("7g.40gb:1")
	if got := w.lease(again).Slices[0]; !got.Reused || got.UUID != l.Slices[0].UUID {
		t.Errorf("the idle instance was not used again: %+v", got)
	}
	if w.total() != 28 {
		t.Errorf("total of gres/mig is %d, want 28 always", w.total())
	}
}

func TestTwoSlicesAndRepeatedProlog(t *testing.T) {
	w := newWorld(t, 2)
	id := w.submit(job(2, "3g.20gb:2"))
	w.publish()
	w.fake.Tick()
	l := w.lease(id)
	if len(l.Slices) != 2 || l.Slices[0].Slot != 0 || l.Slices[1].Slot != 1 || l.Slices[0].UUID == l.Slices[1].UUID {
		t.Fatalf("%+v", l)
	}
	again, err := w.agent.Lease(context.Background(), id, api.LeaseRequest{UID: 20001, Slots: []int{0, 1}})
	if err != nil || len(again.Slices) != 2 || again.Slices[0].UUID != l.Slices[0].UUID {
		t.Errorf("a repeated prolog was answered %+v, %v", again, err)
	}
	for range 2 { // the epilog is repeated
		if err := w.agent.Release(context.Background(), id, 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.agent.Job(context.Background(), id); err == nil {
		t.Error("still leased")
	}
	if err := w.agent.Release(context.Background(), 4711, 0); err != nil {
		t.Errorf("an epilog without a prolog: %v", err)
	}
}

// TestExclusive checks that an --exclusive job gets only the slices that it requests, although slurmctld allocates
// every slot and every slice of the node to it. The first job requests no GPU, and the second requests one slice.
func TestExclusive(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	cpu := w.submit(slurm.Job{Name: "cpu", Exclusive: true, Batch: true})
	w.fake.Tick()
	if l := w.lease(cpu); l.Error != "" || len(l.Slices) != 0 || len(l.Slots) != 7 {
		t.Fatalf("%+v", l)
	}
	if got := w.leaseFile(cpu); strings.Count(got, " -\n") != 7 {
		t.Errorf("lease file:\n%s", got)
	}
	if err := w.fake.Finish(cpu); err != nil {
		t.Fatal(err)
	}
	one := job(1, "2g.10gb:1")
	one.Exclusive = true
	id := w.submit(one)
	w.publish()
	w.fake.Tick()
	if l := w.lease(id); len(l.Slices) != 1 || l.Slices[0].Profile != "2g.10gb" {
		t.Fatalf("%+v", l)
	}
	if n := w.node.Emulator(t, "show", "--json"); strings.Count(n, "2g.10gb") == 0 {
		t.Errorf("not carved: %s", n)
	}
}

// TestGPUWithoutSlices checks that a job is not requeued if Slurm has allocated it only a GPU that is not a slot.
func TestGPUWithoutSlices(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	id := w.submit(slurm.Job{Name: "whole", Exclusive: true, Batch: true})
	w.fake.Tick()
	l, err := w.agent.Lease(t.Context(), id, api.LeaseRequest{UID: w.uid, GID: w.uid, Slots: []int{7}})
	if err != nil || l.Error != "" || len(l.Slices) != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	if !w.agent.notSlots([]int{7, 8}) || w.agent.notSlots([]int{6, 7}) || w.agent.notSlots(nil) {
		t.Error("an A100 has the slots 0 to 6")
	}
}

// TestExclusiveLeavesNothingBehind checks the counts after the end of an --exclusive job, before its epilog publishes.
// The slices that slurmctld allocated beyond the job's request must not become free in addition to those in the plan.
func TestExclusiveLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	planned := w.offers()
	id := w.submit(slurm.Job{Name: "cpu", Exclusive: true, Batch: true})
	w.fake.Tick()
	w.lease(id)
	w.publish()
	w.fake.Epilog(nil)
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	for profile, n := range w.offers() {
		if n > planned[profile] {
			t.Errorf("%d of %s are free, %d were planned", n, profile, planned[profile])
		}
	}
}

// TestMistakes checks that the lease file shows the error for a user's mistake, and that the prolog succeeds, so that
// Slurm does not drain the node.
func TestMistakes(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	id := w.startNow("1g.5gb:2")
	if l := w.lease(id); !strings.Contains(l.Error, "gres/mig=2 and gres/gpu=1") {
		t.Errorf("%+v", l)
	}
	if got := w.leaseFile(id); !strings.Contains(got, "\nerror the job has gres/mig=2") {
		t.Errorf("lease file:\n%s", got)
	}
	l, err := w.agent.Lease(context.Background(), 999, api.LeaseRequest{UID: 1, Slots: []int{0}})
	if err != nil || !strings.Contains(l.Error, "no longer knows this job") {
		t.Errorf("an unknown job: %+v, %v", l, err)
	}
}

// TestForeignInstance checks that the agent neither changes an instance that another program created, nor offers its
// units.
func TestForeignInstance(t *testing.T) {
	w := newWorld(t, 1)
	w.node.Emulator(t, "create", "0", "2g.10gb", "2")
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	seven := w.submit(job(1, "7g.40gb:1"))
	small := w.startNow("1g.5gb:1")
	if w.state(seven) != "PENDING" || w.state(small) == "PENDING" {
		t.Errorf("7g is %s, 1g is %s", w.state(seven), w.state(small))
	}
	status, _ := w.agent.Status(context.Background())
	found := false
	for _, in := range status.GPUs[0].Instances {
		found = found || in.State == "foreign" && in.Start == 2 && in.Profile == "2g.10gb"
	}
	if !found {
		t.Errorf("status: %+v", status.GPUs[0].Instances)
	}
}

// pendingLease starts a job with one slice whose prolog has not begun, and returns the spot of its pending lease.
func (w *world) pendingLease(slices string) (id uint32, s offer.Spot) {
	w.t.Helper()
	id = w.submit(job(1, slices))
	w.publish()
	w.fake.Prolog(nil)
	w.fake.Tick()
	w.publish()
	pending := w.agent.node.Pending[id]
	if pending == nil || len(pending.Spots) != 1 {
		w.t.Fatalf("pending lease: %+v", pending)
	}
	return id, pending.Spots[0]
}

// TestForeignInstanceInPendingLease checks that the agent keeps publishing if another program creates an instance at
// the placement of a pending lease, and that the lease is then given another placement.
func TestForeignInstanceInPendingLease(t *testing.T) {
	w := newWorld(t, 2)
	id, spot := w.pendingLease("7g.40gb:1")
	gpu := spot.GPU
	w.node.Emulator(t, "create", fmt.Sprint(gpu), "2g.10gb", "2")
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	w.publish()
	j, _ := w.fake.Job(context.Background(), id)
	w.prolog(j)
	if l := w.lease(id); l.Error != "" || len(l.Slices) != 1 || l.Slices[0].GPU == gpu {
		t.Errorf("GPU %d has a foreign instance: %+v", gpu, l)
	}
}

// TestForeignInstanceAtTheSpot checks that the agent does not destroy an instance that another program has created,
// with the same profile and at the same placement, before the agent tries to carve its own. The job must be given
// another placement.
func TestForeignInstanceAtTheSpot(t *testing.T) {
	w := newWorld(t, 2)
	id, s := w.pendingLease("3g.20gb:1")
	start := w.agent.node.Cards[s.GPU].Model.Placements[s.Placement].Start
	w.node.Emulator(t, "create", fmt.Sprint(s.GPU), "3g.20gb", fmt.Sprint(start))
	before, err := w.agent.hw.Instances(s.GPU)
	if err != nil || len(before) != 1 {
		t.Fatalf("%+v, %v", before, err)
	}
	j, _ := w.fake.Job(context.Background(), id)
	w.prolog(j)
	if l := w.lease(id); len(l.Slices) != 1 || l.Slices[0].GPU == s.GPU && l.Slices[0].Start == start {
		t.Errorf("%+v", l)
	}
	if after, err := w.agent.hw.Instances(s.GPU); err != nil || !contains(after, before[0]) {
		t.Errorf("%+v, %v: %+v is gone", after, err, before[0])
	}
}

// TestStuckInstance checks that the agent does not offer the units of an idle instance while the driver cannot destroy
// it.
func TestStuckInstance(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb:1")
	l := w.lease(id)
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	gi := fmt.Sprint(7 + l.Slices[0].Start)
	w.node.Emulator(t, "hold", "0", gi)
	big := w.startNow("7g.40gb:1")
	if got := w.lease(big); !strings.Contains(got.Error, "no room") {
		t.Fatalf("%+v", got)
	}
	status, _ := w.agent.Status(context.Background())
	if in := status.GPUs[0].Instances; len(in) != 1 || in[0].State != "stuck" {
		t.Errorf("%+v", in)
	}
	w.fake.RunEpilogs()
	w.publish()
	if w.offers()["7g.40gb"] != 0 {
		t.Errorf("offers %v over a stuck instance", w.offers())
	}
	w.node.Emulator(t, "unhold", "0", gi)
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	w.fake.Advance(10 * 60e9)
	w.publish()
	w.fake.Tick()
	if got := w.lease(big); len(got.Slices) != 1 {
		t.Errorf("after the hold has ended: %+v", got)
	}
}

// TestUnregisteredNodeOffersNothing checks that the agent offers no slices until slurmd has registered. A job that
// starts before the registration has slots without numbers.
func TestUnregisteredNodeOffersNothing(t *testing.T) {
	w := newWorld(t, 1)
	running := w.startNow("2g.10gb:1")
	w.lease(running)
	w.fake.Restart()
	if err := w.fake.Unregister("n1"); err != nil {
		t.Fatal(err)
	}
	next := w.submit(job(1, "1g.5gb:1"))
	if err := w.agent.Publish(context.Background()); !errors.Is(err, publish.ErrUnregistered) {
		t.Errorf("publish: %v", err)
	}
	w.fake.Tick()
	if len(w.offers()) != 0 || w.state(next) != "PENDING" {
		t.Errorf("offers %v, the next job is %s", w.offers(), w.state(next))
	}
	if err := w.fake.Register("n1"); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.fake.Tick()
	if l := w.lease(next); len(l.Slices) != 1 {
		t.Errorf("%+v", l)
	}
}

// TestRegistersDuringAPass checks that a pass publishes offers if slurmd registers while the pass runs.
func TestRegistersDuringAPass(t *testing.T) {
	w := newWorld(t, 1)
	if err := w.fake.Unregister("n1"); err != nil {
		t.Fatal(err)
	}
	reads := 0
	w.fake.After(func(c slurmtest.Call) {
		if c.Op != "Nodes" {
			return
		}
		if reads++; reads == 1 {
			if err := w.fake.Register("n1"); err != nil {
				t.Error(err)
			}
		}
	})
	w.publish()
	if len(w.offers()) == 0 {
		t.Error("nothing is offered")
	}
}

// TestUnregisteredDuringAPass checks a restart of slurmctld after a pass has read the nodes. The agent must not offer
// any slices until slurmd has registered. On a slow machine, the pass ends as in TestUnregisteredDuringASlowPass.
func TestUnregisteredDuringAPass(t *testing.T) {
	w := newWorld(t, 1)
	w.once("Queue", func() {
		w.fake.Restart()
		if err := w.fake.Unregister("n1"); err != nil {
			t.Error(err)
		}
	})
	err := w.agent.Publish(context.Background())
	if !errors.Is(err, publish.ErrUnregistered) && !errors.Is(err, publish.ErrOutdated) {
		t.Errorf("publish: %v", err)
	}
	if len(w.offers()) > 0 {
		t.Errorf("offers: %v", w.offers())
	}
}

// TestUnregisteredDuringASlowPass checks a restart of slurmctld after a pass has read the nodes and before the pass
// continues after a delay. The pass must not write any counts. The delay comes from a Slurm command that tries to
// reach slurmctld during the restart.
func TestUnregisteredDuringASlowPass(t *testing.T) {
	w := newWorld(t, 1)
	w.startNow("2g.10gb:1")
	restarted := false
	w.restartIn("Queue", &restarted)
	if err := w.agent.Publish(context.Background()); !errors.Is(err, publish.ErrOutdated) || !restarted {
		t.Errorf("publish: %v; restarted: %v", err, restarted)
	}
}

// TestUnregisteredDuringAReading is like TestUnregisteredDuringASlowPass, but the second reading of the node is also
// slow, and returns the data of the slurmctld process that has ended.
func TestUnregisteredDuringAReading(t *testing.T) {
	w := newWorld(t, 1)
	w.startNow("2g.10gb:1")
	restarted := false
	w.once("Queue", func() {
		time.Sleep(publish.Fresh)
		w.restartIn("Node", &restarted)
	})
	if err := w.agent.Publish(context.Background()); !errors.Is(err, publish.ErrOutdated) || !restarted {
		t.Errorf("publish: %v; restarted: %v", err, restarted)
	}
}

// restartIn restarts slurmctld after it has answered a call of the given kind, but before the command ends. No later
// update may offer slices, because slurmd has not registered.
func (w *world) restartIn(op string, restarted *bool) {
	w.fake.After(func(c slurmtest.Call) {
		switch {
		case c.Op == op && !*restarted:
			*restarted = true
			time.Sleep(publish.Fresh)
			w.fake.Restart()
			if err := w.fake.Unregister("n1"); err != nil {
				w.t.Error(err)
			}
		case c.Op == "UpdateNode" && *restarted && len(w.offers()) > 0:
			w.t.Errorf("offers on a node that has not registered: %v", w.offers())
		}
	})
}

// TestLostGPU checks that the agent carves a slice on another GPU if the first one falls off the bus while the slice is
// being carved. The job must not fail, and the node must not be drained.
func TestLostGPU(t *testing.T) {
	w := newWorld(t, 2)
	id := w.submit(job(1, "3g.20gb:1"))
	w.publish()
	gpu := -1
	for i, l := range w.agent.node.Offers {
		for p := range l.Indices() {
			if b := w.agent.node.Cards[i].Model; b.Profiles[b.Placements[p].Profile].Name == "3g.20gb" && gpu < 0 {
				gpu = i
			}
		}
	}
	w.node.Emulator(t, "lose", fmt.Sprint(gpu))
	w.fake.Tick()
	l := w.lease(id)
	if l.Error != "" || len(l.Slices) != 1 {
		t.Fatalf("%+v", l)
	}
	if l.Slices[0].GPU == gpu {
		t.Errorf("leased on the lost GPU %d", gpu)
	}
	status, _ := w.agent.Status(context.Background())
	if !strings.Contains(status.GPUs[gpu].Problem, "lost") {
		t.Errorf("the status does not show the lost GPU: %+v", status.GPUs[gpu])
	}
}

// TestOfferOnLostGPU checks a prolog whose job is planned on a GPU that the agent has found to be lost since it offered
// the slice.
func TestOfferOnLostGPU(t *testing.T) {
	w := newWorld(t, 2)
	id := w.submit(job(1, "3g.20gb:1"))
	w.publish()
	planned := w.agent.node.Planned[id]
	if len(planned) != 1 {
		t.Fatalf("planned: %v", planned)
	}
	lost := planned[0][0].GPU
	w.node.Emulator(t, "lose", fmt.Sprint(lost))
	if err := w.agent.compareGPUs(); err == nil {
		t.Fatal("the GPU was not lost")
	}
	w.fake.Tick()
	if l := w.lease(id); l.Error != "" || len(l.Slices) != 1 || l.Slices[0].GPU == lost {
		t.Errorf("GPU %d was lost: %+v", lost, l)
	}
}

// TestCrash checks that leases and their slices survive a crash of the agent. The next agent must also record a pending
// lease for a job that slurmctld has started after the crash.
func TestCrash(t *testing.T) {
	w := newWorld(t, 1)
	a := w.startNow("3g.20gb:1")
	before := w.lease(a)
	b := w.submit(job(1, "3g.20gb:1"))
	w.publish()
	w.stop()
	// slurmctld starts job b while no agent is running. Its prolog waits.
	w.fake.Prolog(nil)
	w.fake.Tick()
	if w.state(b) == "PENDING" {
		t.Fatal("b did not start")
	}
	w.start()
	w.publish()
	if got := w.offers(); len(got) != 0 {
		t.Errorf("offers %v, but b has taken the other half", got)
	}
	jb, _ := w.fake.Job(context.Background(), b)
	w.prolog(jb)
	if l := w.lease(b); len(l.Slices) != 1 || l.Slices[0].Start == before.Slices[0].Start {
		t.Errorf("b got %+v", l)
	}
	after, err := w.agent.Job(context.Background(), a)
	if err != nil || after.Slices[0].UUID != before.Slices[0].UUID {
		t.Errorf("a now has %+v, %v", after, err)
	}
	// The epilog of job a is lost. The comparison with slurmctld must detect that this job has ended.
	w.fake.Epilog(nil)
	if err := w.fake.Finish(a); err != nil {
		t.Fatal(err)
	}
	w.publish()
	if err := w.agent.releaseGone(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.agent.Job(context.Background(), a); err == nil {
		t.Error("the lease of an ended job still exists")
	}
	if _, err := w.agent.Job(context.Background(), b); err != nil {
		t.Error("the lease of a running job was released too")
	}
}

// TestHeldJobs checks a job that names a node and that job_submit.lua has therefore held. The agent must release it
// when its slice is offered. A job that was held by its user must stay held.
func TestHeldJobs(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	named := job(1, "7g.40gb:1")
	named.ReqNodes, named.AdminComment = []string{"n1"}, "site:note caelum:held"
	ours := w.fake.SubmitHeld(named)
	named.AdminComment = "site:note"
	users := w.fake.SubmitHeld(named)
	w.publish()
	w.fake.Tick()
	if l := w.lease(ours); len(l.Slices) != 1 {
		t.Fatalf("%+v", l)
	}
	j, _ := w.fake.Job(context.Background(), ours)
	if j.AdminComment != "site:note caelum:released" {
		t.Errorf("admin_comment %q", j.AdminComment)
	}
	if err := w.fake.Finish(ours); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.fake.Tick()
	if w.state(users) != "PENDING" {
		t.Errorf("the user's own hold was lifted: %s", w.state(users))
	}
}

// TestManyHeldJobs checks that a pass releases only some of many jobs that cannot meet their deadlines, because no
// offers are published in the meantime.
func TestManyHeldJobs(t *testing.T) {
	w := newWorld(t, 1)
	calls := map[string]int{}
	w.fake.After(func(c slurmtest.Call) { calls[c.Op]++ })
	for range publish.MaxChanged + 4 {
		late := job(1, "7g.40gb:1")
		late.ReqNodes, late.AdminComment, late.Deadline = []string{"n1"}, "caelum:held", time.Unix(1, 0)
		w.fake.SubmitHeld(late)
	}
	w.publish()
	if calls["Release"] != publish.MaxChanged {
		t.Errorf("a pass released %d jobs, want %d", calls["Release"], publish.MaxChanged)
	}
	w.publish()
	if calls["Release"] != publish.MaxChanged+4 {
		t.Errorf("two passes released %d jobs, want %d", calls["Release"], publish.MaxChanged+4)
	}
}

// TestManyRetaggedJobs checks that a pass replaces the tags of only some of many jobs that have been released, for
// example because their users changed their nice values.
func TestManyRetaggedJobs(t *testing.T) {
	w := newWorld(t, 1)
	var all []uint32
	for range publish.MaxChanged + 4 {
		j := job(1, "7g.40gb:1")
		j.ReqNodes, j.AdminComment = []string{"n1"}, tags.Held
		id := w.fake.SubmitHeld(j)
		if err := w.fake.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	for pass, want := range []int{publish.MaxChanged, publish.MaxChanged + 4} {
		w.publish()
		n := 0
		for _, id := range all {
			if j, err := w.fake.Job(t.Context(), id); err == nil && tags.Has(j.AdminComment, tags.Released) {
				n++
			}
		}
		if n != want {
			t.Errorf("pass %d: %d jobs have the new tag, want %d", pass, n, want)
		}
	}
}

// TestHeldJobTaggedMeanwhile adds a tag to a held job after the pass has read the queue. Releasing the job must not
// remove the tag.
func TestHeldJobTaggedMeanwhile(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	named := job(1, "7g.40gb:1")
	named.ReqNodes, named.AdminComment = []string{"n1"}, "caelum:held"
	id := w.fake.SubmitHeld(named)
	w.fake.After(func(c slurmtest.Call) {
		if c.Op == "Release" {
			w.fake.After(nil)
			if err := w.fake.SetAdminComment(context.Background(), id, "caelum:held caelum:grown=new"); err != nil {
				t.Error(err)
			}
		}
	})
	w.publish()
	j, err := w.fake.Job(context.Background(), id)
	if err != nil || j.AdminComment != "caelum:grown=new caelum:released" {
		t.Errorf("admin_comment %q, %v", j.AdminComment, err)
	}
}

func TestSlurmctldAway(t *testing.T) {
	w := newWorld(t, 1)
	id := w.submit(job(1, "1g.5gb:1"))
	w.publish()
	w.fake.Prolog(nil)
	w.fake.Tick()
	w.fake.Before(func(slurmtest.Call) error { return slurm.ErrUnreachable })
	_, err := w.agent.Lease(context.Background(), id, api.LeaseRequest{UID: 20001, Slots: []int{0}})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != 503 {
		t.Errorf("a prolog without slurmctld: %v, want 503: ask again", err)
	}
	if err := w.agent.Release(context.Background(), id, 0); err != nil {
		t.Errorf("an epilog without slurmctld: %v", err)
	}
}

func TestCloseOffers(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	if len(w.offers()) == 0 {
		t.Fatal("nothing is offered")
	}
	if err := publish.CloseOffers(context.Background(), w.fake, "n1", w.total()); err != nil {
		t.Fatal(err)
	}
	if len(w.offers()) != 0 || w.total() != 28 {
		t.Errorf("offers %v, total %d", w.offers(), w.total())
	}
	n, _ := w.fake.Node(context.Background(), "n1")
	if len(n.Gres.Named("gpu")) != 1 || n.Gres[0].Count != 7 {
		t.Errorf("the slots were removed too: %v", n.Gres)
	}
	if n.Extra != "" {
		t.Errorf("Extra is %q", n.Extra)
	}
}

// poweringDown is a slurmctld that powers its nodes down.
type poweringDown struct{ *slurmtest.Fake }

func (p poweringDown) Node(ctx context.Context, name string) (slurm.Node, error) {
	n, err := p.Fake.Node(ctx, name)
	n.States = []string{"IDLE", "POWERING_DOWN"}
	return n, err
}

// TestCloseOffersBeforePowerDown checks that the state of the GPUs stays in Extra while slurmctld powers the node down,
// so that the planner can make offers for it.
func TestCloseOffersBeforePowerDown(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	published, _ := w.fake.Node(t.Context(), "n1")
	if err := publish.CloseOffers(t.Context(), poweringDown{w.fake}, "n1", w.total()); err != nil {
		t.Fatal(err)
	}
	n, _ := w.fake.Node(t.Context(), "n1")
	if len(w.offers()) != 0 || n.Extra != published.Extra || n.Extra == "" {
		t.Errorf("offers %v, Extra %q", w.offers(), n.Extra)
	}
}

// TestRunInJobIsRefused checks that the agent offers no slices if PrologFlags includes RunInJob, because slurmd then
// skips the SPANK prolog. The error must mention RunInJob.
func TestRunInJobIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.fake.SetConfig("PrologFlags", "Alloc,RunInJob")
	err := w.agent.Publish(context.Background())
	if err == nil || !strings.Contains(err.Error(), "RunInJob") {
		t.Errorf("published despite RunInJob: %v", err)
	}
	if len(w.offers()) != 0 {
		t.Errorf("offers %v", w.offers())
	}
}

// TestGivingUp checks that the agent requeues a job three times if its slice can never be carved. After the third
// requeue, the job must stay held, and its admin_comment must name the missing slice.
func TestGivingUp(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	w.node.Emulator(t, "fault", "add", "--call", "CREATE_GI", "--nth", "1", "--times", "1000", "--error", "UNKNOWN")
	id := w.submit(job(1, "1g.5gb:1"))
	for range maxRequeues + 1 {
		w.publish()
		w.fake.Tick()
		w.prologs.Wait()
		w.fake.RunEpilogs()
		w.fake.Advance(10 * time.Minute)
	}
	w.publish()
	w.fake.Tick()
	j, _ := w.fake.Job(context.Background(), id)
	if j.State != "PENDING" || j.AdminComment != "caelum:released caelum:requeued=4 caelum:no-room=1g.5gb:1@n1" {
		t.Errorf("%s, admin_comment %q", j.State, j.AdminComment)
	}
}

// TestExpectedEnd checks a job's expected end as the node publishes it for the other agents. It must follow from the
// learned run time and its quantile, and move back if the job runs longer, but not beyond the end of the time limit.
func TestExpectedEnd(t *testing.T) {
	w := newWorld(t, 1)
	j := job(1, "7g.40gb:1")
	j.AdminComment, j.TimeLimit = tags.RunTime+"600-600", time.Hour
	id := w.submit(j)
	w.publish()
	w.fake.Tick()
	w.lease(id)
	for _, c := range []struct {
		after time.Duration
		want  time.Duration // after the start
	}{
		{time.Minute, 10 * time.Minute},
		{10 * time.Minute, 12*time.Minute + 6*time.Second}, // 600 s times 1.1 squared, after 11 minutes
		{48 * time.Minute, time.Hour},
	} {
		w.fake.Advance(c.after)
		w.publish()
		n, err := w.fake.Node(context.Background(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		state, err := plan.Parse(plan.StateIn(n.Extra))
		if err != nil {
			t.Fatal(err)
		}
		started, _ := w.fake.Job(context.Background(), id)
		for i := range state.GPUs[0].Busy.Indices() {
			if got := state.GPUs[0].Ends[i] - float64(started.Start.Unix()); got != c.want.Seconds() {
				t.Errorf("after %v it is expected to end %v s after its start, want %v", c.after, got, c.want)
			}
		}
		if state.GPUs[0].Busy == 0 {
			t.Fatal("nothing is busy")
		}
	}
}
