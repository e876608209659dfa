package agent

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// compute starts a process that uses a MIG device, and returns a function that ends it.
func (w *world) compute(uuid string) (kill func()) {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(w.node.Build(), "cuda-process"), "--seconds", "3600", "--print")
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+uuid)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	w.t.Cleanup(kill)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		w.t.Fatalf("cuda-process: %v", err)
	}
	return kill
}

func (w *world) stuck() (n int) {
	status, err := w.agent.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range status.GPUs {
		for _, in := range g.Instances {
			if in.State == "stuck" {
				n++
			}
		}
	}
	return n
}

// TestProcessOutlivesItsJob checks that no job gets an instance while a process of an ended job uses it. A restart of
// the agent must not change this.
func TestProcessOutlivesItsJob(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb:1")
	kill := w.compute(w.lease(id).Slices[0].UUID)
	if err := w.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	w.fake.RunEpilogs()
	whole, small := w.submit(job(1, "7g.40gb:1")), w.submit(job(1, "1g.5gb:1"))
	w.publish()
	if w.stuck() != 1 || w.offers()["7g.40gb"] != 0 {
		t.Errorf("%d stuck, offers %v", w.stuck(), w.offers())
	}
	w.stop()
	w.start()
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.fake.Tick()
	if w.stuck() != 1 || w.state(whole) != "PENDING" {
		t.Errorf("after a restart %d stuck, the next job is %s", w.stuck(), w.state(whole))
	}
	if l := w.lease(small); len(l.Slices) != 1 || l.Slices[0].Start == 6 {
		t.Errorf("alongside the stuck instance: %+v", l)
	}
	if !w.agent.hasLeftovers() {
		t.Error("no check of the leftover process is scheduled")
	}
	kill()
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if w.stuck() != 0 || w.agent.hasLeftovers() {
		t.Errorf("%d stuck after the process has ended", w.stuck())
	}
	w.fake.Finish(small)
	w.fake.RunEpilogs()
	w.publish()
	w.fake.Tick()
	if l := w.lease(whole); len(l.Slices) != 1 {
		t.Errorf("after the process has ended: %+v", l)
	}
}

// TestIdleInstanceInUse checks that a job gets another instance if a process uses the idle instance of the planned
// placement.
func TestIdleInstanceInUse(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startNow("1g.5gb:1")
	first := w.lease(id).Slices[0]
	w.fake.Finish(id)
	w.fake.RunEpilogs()
	w.publish()
	w.compute(first.UUID)
	id = w.startNow("1g.5gb:1")
	if l := w.lease(id); len(l.Slices) != 1 || l.Slices[0].Start == first.Start || w.stuck() != 1 {
		t.Errorf("%+v, %d stuck", l, w.stuck())
	}
}
