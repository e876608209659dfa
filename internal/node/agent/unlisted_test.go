package agent

import (
	"errors"
	"strings"
	"testing"

	"caelum/internal/node/gpu"
)

// mute is a driver that does not list processes.
type mute struct{ gpu.Hardware }

func (mute) Processes(int, int) ([]int, error) { return nil, errors.New("NVML_ERROR_NO_PERMISSION") }

// TestProcessesNotListed checks that the agent does not reuse an instance while the driver does not list the processes
// on it.
func TestProcessesNotListed(t *testing.T) {
	w := newWorld(t, 1)
	w.agent.hw = mute{w.node.NVML}
	first := w.granted("1g.5gb")
	if err := w.fake.Finish(1); err != nil {
		t.Fatal(err)
	}
	w.publish()
	second := w.granted("1g.5gb")
	if second.Reused || second.UUID == first.UUID {
		t.Fatalf("the next job has %+v again", second)
	}

	// An instance with a process cannot be destroyed, so the next job must get another one.
	kill := w.compute(second.UUID)
	if err := w.fake.Finish(2); err != nil {
		t.Fatal(err)
	}
	w.publish()
	third := w.granted("1g.5gb")
	if third.UUID == second.UUID || third.Start == second.Start || w.stuck() != 1 {
		t.Errorf("alongside a process that the driver does not list: %+v, %d stuck", third, w.stuck())
	}
	kill()
	if err := w.agent.compareGPUs(); err != nil || w.stuck() != 0 {
		t.Errorf("after the end of the process: %v, %d stuck", err, w.stuck())
	}
	if n := strings.Count(w.log.String(), "couldn't list the processes on a GPU"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	unlisted := func() bool {
		t.Helper()
		s, err := w.agent.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.GPUs[0].Unlisted
	}
	if !unlisted() {
		t.Error("the status does not show that processes are not listed")
	}

	// When the driver lists processes again, the agent must reuse instances.
	w.agent.hw = w.node.NVML
	if err := w.fake.Finish(3); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.granted("1g.5gb")
	if err := w.fake.Finish(4); err != nil {
		t.Fatal(err)
	}
	w.publish()
	if fifth := w.granted("1g.5gb"); !fifth.Reused {
		t.Errorf("the driver lists processes, and the job has %+v", fifth)
	}
	if unlisted() {
		t.Error("the status shows that processes are not listed, but the driver lists them")
	}
}

// lost is a driver that reports that a GPU has fallen off the bus.
type lost struct{ gpu.Hardware }

func (lost) Instances(int) ([]gpu.Instance, error) { return nil, gpu.ErrLost }

// TestLostWhileServing checks, with the race detector, that a GPU can fall off the bus while the agent serves jobs and
// logs the plan.
func TestLostWhileServing(t *testing.T) {
	w := newWorld(t, 1)
	w.agent.hw = lost{w.node.NVML}
	found := make(chan error)
	go func() { found <- w.agent.compareGPUs() }()
	for range 10 {
		w.agent.node.EquivalentProfiles("1g.6gb")
		w.agent.Publish(t.Context())
	}
	if err := <-found; !errors.Is(err, gpu.ErrLost) {
		t.Error(err)
	}
	if got := w.agent.node.EquivalentProfiles("1g.6gb"); len(got) > 0 {
		t.Errorf("a lost GPU has %v", got)
	}
}
