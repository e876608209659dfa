package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/node/gpu/gputest"
)

// newLinked returns a world with four H100s after a reboot, with MIG mode off. groups lists the GPUs that NVLinks
// connect.
func newLinked(t *testing.T, groups string) *world {
	node := gputest.New(t, "H100-80GB", 4, "--mig", "off", "--nvlink", groups)
	w := newWorldOn(t, node, fmt.Sprintf(closedH100, 28, 112), allH100, func(c *config.Config) { c.WholeGPUs = "auto" })
	if err := w.agent.adoptFull(context.Background()); err != nil {
		t.Fatal(err)
	}
	return w
}

// fullJob runs a job with n full GPUs, and returns the indices of its GPUs, for example "0 1".
func (w *world) fullJob(n int) (id uint32, gpus string) {
	w.t.Helper()
	id = w.submit(job(n, fmt.Sprintf("full:%d", n)))
	w.publish()
	w.fake.Tick()
	var all []string
	for _, s := range w.lease(id).Slices {
		all = append(all, fmt.Sprint(s.GPU))
	}
	return id, strings.Join(all, " ")
}

// nvlinkEntry returns the `caelum-nvlink` entry of the node's Extra.
func (w *world) nvlinkEntry() string {
	w.t.Helper()
	n, err := w.fake.Node(context.Background(), "n1")
	if err != nil {
		w.t.Fatal(err)
	}
	for e := range strings.FieldsSeq(n.Extra) {
		if groups, ok := strings.CutPrefix(e, "caelum-nvlink="); ok {
			return groups
		}
	}
	return ""
}

// TestNVLinkPairs checks that slices and jobs with one full GPU do not split a pair, and that a job with two full GPUs
// gets a pair.
func TestNVLinkPairs(t *testing.T) {
	w := newLinked(t, "0,3;1,2")
	slice := w.startNow("1g.10gb:1")
	if g := w.lease(slice).Slices[0].GPU; g != 0 {
		t.Errorf("the slice is on GPU %d", g)
	}
	single, gpus := w.fullJob(1)
	if gpus != "3" {
		t.Errorf("the job with one full GPU has GPU %s", gpus)
	}
	two, gpus := w.fullJob(2)
	if gpus != "1 2" {
		t.Errorf("the job with two full GPUs has the GPUs %s", gpus)
	}
	if got := w.nvlinkEntry(); got != "0,3;1,2" {
		t.Errorf("published %q", got)
	}
	// The driver no longer reports the NVLinks of GPU 0. The next agent uses the ledger.
	w.stop()
	w.start()
	for _, id := range []uint32{single, two} {
		if err := w.fake.Finish(id); err != nil {
			t.Fatal(err)
		}
	}
	if _, gpus = w.fullJob(2); gpus != "1 2" {
		t.Errorf("after a restart, the job has the GPUs %s", gpus)
	}
	if got := w.nvlinkEntry(); got != "0,3;1,2" {
		t.Errorf("after a restart, the agent published %q", got)
	}
	if err := w.fake.Finish(slice); err != nil {
		t.Fatal(err)
	}
	if _, gpus = w.fullJob(2); gpus != "0 3" {
		t.Errorf("the last pair is the GPUs %s", gpus)
	}
}

// TestNVLinkChanges checks that the agent notices NVLinks that are added or removed while MIG mode is off, and that
// it publishes no groups if NVLinks connect all GPUs.
func TestNVLinkChanges(t *testing.T) {
	w := newLinked(t, "all")
	w.publish()
	if got := w.nvlinkEntry(); got != "" {
		t.Errorf("published %q for GPUs that are connected alike", got)
	}
	for _, c := range []struct{ groups, want string }{{"0,2", "0,2"}, {"0,1;2,3", "0,1;2,3"}, {"0,1,2,3", ""}} {
		w.node.Emulator(t, "init", "--board", "H100-80GB", "--gpus", "4", "--mig", "off", "--nvlink", c.groups,
			"--dev-root", w.node.Dev, "--proc-root", w.node.Proc)
		w.agent.readNVLinks()
		w.publish()
		if got := w.nvlinkEntry(); got != c.want {
			t.Errorf("published %q for the groups %s", got, c.groups)
		}
	}
}

// TestNVLinkUnknown checks that the agent publishes no groups while MIG mode hides the NVLinks, and that jobs with
// several full GPUs start.
func TestNVLinkUnknown(t *testing.T) {
	node := gputest.New(t, "H100-80GB", 4, "--nvlink", "0,3;1,2")
	w := newWorldOn(t, node, fmt.Sprintf(closedH100, 28, 112), allH100, func(c *config.Config) { c.WholeGPUs = "auto" })
	if _, gpus := w.fullJob(2); gpus != "0 1" {
		t.Errorf("the job has the GPUs %s", gpus)
	}
	w.agent.readNVLinks() // the NVLinks of GPUs 0 and 1 are not those of a pair
	w.publish()
	if got := w.nvlinkEntry(); got != "" {
		t.Errorf("published %q", got)
	}
	w.fullJob(2)
	w.agent.readNVLinks()
	w.publish()
	if got := w.nvlinkEntry(); got != "0,3;1,2" {
		t.Errorf("published %q after all GPUs were full", got)
	}
}
