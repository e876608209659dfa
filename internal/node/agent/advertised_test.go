package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"caelum/internal/core/tags"
	"caelum/internal/node/api"
)

// drift changes the driver's name of 1g.5gb to 1g.6gb, with 5888 MiB, while no agent is running.
func (w *world) drift(meanwhile ...func()) {
	w.t.Helper()
	w.stop()
	w.node.Emulator(w.t, "drift", "--profile", "1g.5gb", "--name", "1g.6gb", "--memory", "5888")
	for _, do := range meanwhile {
		do()
	}
	w.start()
}

// TestNamesDriftUnderAJob checks a change of the driver's profile names while a job runs. The job must keep its lease
// and its slice under the new profile name. After the job has ended, the agent must use the new name for the offers
// and for the idle instance, and warn that slurm.conf still lists the old one.
func TestNamesDriftUnderAJob(t *testing.T) {
	w := newWorld(t, 1, tightest)
	id := w.startNow("1g.5gb:1")
	before := w.lease(id).Slices[0]
	w.drift()
	w.publish()

	l, err := w.agent.Job(context.Background(), id)
	if err != nil || len(l.Slices) != 1 {
		t.Fatalf("the job's lease: %+v, %v", l, err)
	}
	after := l.Slices[0]
	if after.UUID != before.UUID || after.Start != before.Start || after.Profile != "1g.6gb" ||
		after.MemoryMiB != 5888 {
		t.Errorf("the job held %+v and holds %+v", before, after)
	}
	status, _ := w.agent.Status(context.Background())
	if in := status.GPUs[0].Instances; len(in) != 1 || in[0].State != "leased" || in[0].Job != id ||
		in[0].Profile != "1g.6gb" {
		t.Errorf("instances %+v", in)
	}
	if !slices.Equal(status.Stale, []string{"1g.5gb"}) || !slices.Contains(status.Profiles, "1g.6gb") ||
		slices.Contains(status.Profiles, "1g.5gb") {
		t.Errorf("stale %v, profiles %v", status.Stale, status.Profiles)
	}
	if o := w.offers(); o["1g.6gb"] == 0 || o["1g.5gb"] != 0 {
		t.Errorf("offers: %v", o)
	}
	if w.total() != 28 {
		t.Errorf("total of gres/mig is %d, want 28 always", w.total())
	}
	w.publish()
	if n := strings.Count(w.log.String(), "slurm.conf gives n1 the profiles 1g.5gb, which the node's driver does not "+
		"report"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, w.log.String())
	}

	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	status, _ = w.agent.Status(context.Background())
	if in := status.GPUs[0].Instances; len(in) != 1 || in[0].State != "idle" {
		t.Fatalf("after the job: %+v", in)
	}
	files, err := filepath.Glob(filepath.Join(w.node.Dev, "nvidia-caps", "nvidia-cap*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s is still the user's (%v)", file, err)
		}
	}
	again := w.submit(job(1, "1g.6gb:1"))
	w.fake.Tick()
	if got := w.lease(again).Slices[0]; got.Profile != "1g.6gb" || got.MemoryMiB != 5888 {
		t.Errorf("the next job got %+v", got)
	}
}

// TestOldNameIsServed checks that a job that requests a profile by its old name gets the equivalent profile if
// slurmctld starts it on this node.
func TestOldNameIsServed(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	w.drift()
	w.publish()
	n, err := w.fake.Node(context.Background(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range n.Gres {
		if g.Type == "1g.5gb" {
			n.Gres[i].Count = 1
		}
	}
	if err := w.fake.UpdateNode(context.Background(), "n1", n.Gres, n.Extra); err != nil {
		t.Fatal(err)
	}
	id := w.submit(job(1, "1g.5gb:1"))
	w.fake.Tick()
	if l := w.lease(id); len(l.Slices) != 1 || l.Slices[0].Profile != "1g.6gb" || l.Slices[0].AdvertisedAs != "1g.5gb" {
		t.Errorf("the job has %+v", l)
	}
}

// TestAnotherModelsName checks an offer for a job whose profile Caelum chose. The node must offer the equivalent
// profile under the name of another GPU model's profile: slurmctld counts that profile, but the job gets the
// equivalent one. A restart of the agent must not change either.
func TestAnotherModelsName(t *testing.T) {
	w := newWorld(t, 1, tightest)
	sized := func() uint32 {
		j := job(1, "2g.20gb:1") // a profile of an H100
		j.AdminComment = tags.Size + "2g.20gb"
		return w.submit(j)
	}
	first := sized()
	w.publish()
	if o := w.offers(); o["2g.20gb"] != 1 {
		t.Fatalf("offers: %v", o)
	}
	status, _ := w.agent.Status(context.Background())
	if !slices.ContainsFunc(
		status.GPUs[0].Offers,
		func(p api.Placement) bool { return p.Profile == "3g.20gb" && p.As == "2g.20gb" },
	) {
		t.Errorf("the offers in the status: %+v", status.GPUs[0].Offers)
	}
	w.fake.Tick()
	l := w.lease(first)
	if len(l.Slices) != 1 || l.Slices[0].Profile != "3g.20gb" || l.Slices[0].AdvertisedAs != "2g.20gb" {
		t.Fatalf("the job has %+v", l)
	}
	status, _ = w.agent.Status(context.Background())
	if in := status.GPUs[0].Instances; len(in) != 1 || in[0].Profile != "3g.20gb" || in[0].As != "2g.20gb" {
		t.Errorf("the status has %+v", in)
	}
	w.stop()
	w.start()
	second := sized()
	w.publish()
	w.fake.Tick()
	if l := w.lease(second); len(l.Slices) != 1 || l.Slices[0].Profile != "3g.20gb" {
		t.Fatalf("the second job has %+v", l)
	}
	third := sized()
	w.publish()
	if o := w.offers(); len(o) != 0 || w.total() != 28 {
		t.Errorf("offers alongside two halves of a GPU: %v, total %d", o, w.total())
	}
	if err := w.fake.Finish(first); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.fake.Tick()
	if l := w.lease(third); len(l.Slices) != 1 || !l.Slices[0].Reused {
		t.Errorf("the third job has %+v", l)
	}
	w.publish()
	status, _ = w.agent.Status(context.Background())
	if len(status.Stale) != 0 {
		t.Errorf("stale: %v", status.Stale)
	}
}

// TestNameAndInstanceGone checks an instance that is destroyed, and whose profile is renamed, while no agent is
// running. The next agent must remove it from the ledger and log the id of its job.
func TestNameAndInstanceGone(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb:1")
	w.lease(id)
	status, _ := w.agent.Status(context.Background())
	in := status.GPUs[0].Instances[0]
	w.drift(func() { w.node.Emulator(t, "destroy", "0", fmt.Sprint(in.GI)) })
	if !strings.Contains(w.log.String(), "was removed by another program while the job held it") {
		t.Errorf("not logged:\n%s", w.log.String())
	}
	if left, err := w.agent.ledger.Instances(); err != nil || len(left) != 0 {
		t.Errorf("in the ledger: %+v, %v", left, err)
	}
}
