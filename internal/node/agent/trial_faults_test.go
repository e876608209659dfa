package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// trialFaults are the faults. inject returns when the fault has ended. If a planner is killed, stopped or partitioned
// until the check of the recovery, inject returns immediately.
var trialFaults = []struct {
	name   string
	inject func(*trial)
}{
	{"killed", (*trial).killPlanner},
	{"stopped", (*trial).stopPlanner},
	{"partitioned planner", (*trial).partitionPlanner},
	{"partitioned agents", (*trial).partitionAgents},
	{"two planners", (*trial).secondPlanner},
	{"slow slurmctld", (*trial).slowSlurmctld},
	{"restarted slurmctld", (*trial).restartSlurmctld},
}

// injectFaults injects one or two faults at random times and waits until they have ended. The trials take turns with
// the first fault.
func (t *trial) injectFaults(k int) {
	faults := []int{k % len(trialFaults)}
	if t.chance(0.4) {
		if second := t.below(len(trialFaults)); second != faults[0] {
			faults = append(faults, second)
		}
	}
	var all sync.WaitGroup
	for _, k := range faults {
		f := trialFaults[k]
		t.injected = append(t.injected, f.name)
		all.Go(func() {
			time.Sleep(t.between(0, 40*time.Second))
			t.logf("fault: %s", f.name)
			f.inject(t)
			t.logf("end of fault: %s", f.name)
		})
	}
	all.Wait()
	if t.chance(0.3) {
		time.Sleep(t.between(0, 40*time.Second))
	}
}

// planner returns the k-th planner that was started.
func (t *trial) planner(k int) *plannerProcess {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.planners[k]
}

func (t *trial) killPlanner() {
	p := t.planner(0)
	p.kill()
	if t.chance(0.5) {
		time.Sleep(t.between(time.Second, 40*time.Second))
		t.startPlanner(p.host, p.policy)
		return
	}
	t.end()
}

// end notes that the first planner does not make plans until the jobs start again.
func (t *trial) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

func (t *trial) stopPlanner() {
	if t.chance(0.4) {
		t.tasks.Go(func() { t.planner(0).stop(func() { <-t.draining }) })
		t.end()
		return
	}
	t.planner(0).stop(t.sleeps(time.Second, 50*time.Second))
}

func (t *trial) partitionPlanner() {
	broken := error(slurm.ErrUnreachable)
	if t.chance(0.3) {
		broken = errors.New("permission denied")
	}
	kind := t.below(3)
	t.planner(0).setCut(func(op string) error {
		if kind == 0 || kind == 1 && op == "SetNodeComment" || kind == 2 && t.chance(0.3) {
			return fmt.Errorf("partition: %w", broken)
		}
		return nil
	})
	if t.chance(0.3) && kind != 2 {
		t.end()
		return // the partition lasts until the end of the trial
	}
	time.Sleep(t.between(time.Second, 50*time.Second))
	t.planner(0).setCut(nil)
}

func (t *trial) partitionAgents() {
	cut := t.parties
	if t.chance(0.7) {
		k := t.below(trialNodes)
		cut = t.parties[k : k+1]
	}
	for _, p := range cut {
		p.setCut(func(string) error { return fmt.Errorf("partition: %w", slurm.ErrUnreachable) })
	}
	time.Sleep(t.between(time.Second, 40*time.Second))
	for _, p := range cut {
		p.setCut(nil)
	}
}

func (t *trial) secondPlanner() {
	t.startPlanner("ctl2", place.Lifetime{})
	time.Sleep(t.between(0, 10*time.Second))
	if t.chance(0.7) {
		t.planner(0).stop(t.sleeps(10*time.Second, 50*time.Second))
	}
}

func (t *trial) slowSlurmctld() {
	set := func(slow bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.slow = slow
	}
	set(true)
	time.Sleep(t.between(5*time.Second, 40*time.Second))
	set(false)
}

func (t *trial) restartSlurmctld() {
	t.scheduler.Lock()
	t.away = true
	t.scheduler.Unlock()
	time.Sleep(t.between(time.Second, 15*time.Second))
	t.scheduler.Lock()
	t.fake.Restart()
	lost := t.chance(0.3) // the state file
	for _, name := range t.names {
		t.fake.Unregister(name)
		if lost {
			t.fake.SetNodeComment(context.Background(), name, "")
		}
	}
	t.away = false
	t.runs++
	t.scheduler.Unlock()
	for _, name := range t.names {
		time.Sleep(t.between(0, time.Second))
		t.scheduler.Lock()
		t.fake.Register(name)
		t.scheduler.Unlock()
	}
}
