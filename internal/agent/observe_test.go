package agent

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/api"
	"caelum/internal/gpu"
	"caelum/internal/predict"
	"caelum/internal/slurm"
)

// learning is a world whose agents have a repository and an accounting, and a clock of the test's.
type learning struct {
	*world
	repo   *memory
	dbd    *dbd
	clock  time.Duration
	meters map[*usage]gpu.Meter
}

func newLearning(t testing.TB, gpus int) *learning {
	l := &learning{world: newWorld(t, gpus), repo: newMemory(), dbd: newDBD(), clock: monotonic()}
	l.world.stop()
	l.start()
	return l
}

func (l *learning) start() {
	l.t.Helper()
	l.cfg.AccountingField = string(slurm.AdminComment)
	l.world.start()
	l.agent.clock = func() time.Duration { return l.clock }
	l.agent.Keep(l.repo, l.dbd)
	l.meters = map[*usage]gpu.Meter{}
}

// look lets a second pass and looks at a GPU.
func (l *learning) sample(g int) {
	l.clock += time.Second
	l.agent.sample(g, l.meters)
}

// uses runs a process on a slice until it is ended, and answers when it has its memory.
func (w *world) uses(uuid string, mib int) (end func()) {
	w.t.Helper()
	cmd := exec.Command(
		filepath.Join(w.node.Build(), "cuda-process"),
		"--memory",
		strconv.Itoa(mib),
		"--util",
		"0.25",
		"--seconds",
		"3600",
	)
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+uuid)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	w.t.Cleanup(end)
	m, err := w.node.Meter(0, gpu.Instance{UUID: uuid})
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		if use, err := m.Read(); err != nil {
			w.t.Fatal(err)
		} else if use.MemoryMiB == float64(mib) {
			return end
		}
		time.Sleep(time.Millisecond)
	}
}

// finish ends a job and answers its run.
func (l *learning) finish(id uint32) predict.Run {
	l.t.Helper()
	if err := l.fake.Finish(id); err != nil {
		l.t.Fatal(err)
	}
	l.agent.keep(false)
	runs := l.repo.kept()
	k := slices.IndexFunc(runs, func(r predict.Run) bool { return r.Job == id })
	if k < 0 {
		l.t.Fatalf("no run of job %d is kept: %+v", id, runs)
	}
	return runs[k]
}

// The main story: a job's memory is looked at while it rises and falls, its owner sees it, and at the end a run with
// its peak, quantiles and time is kept, under the key that job_submit.lua gave the job.
func TestObservedRun(t *testing.T) {
	l := newLearning(t, 1)
	j := job(1, "2g.10gb:1")
	j.Account, j.AdminComment = "physics", "other=1 caelum:key=0123456789abcdef caelum:work=fedcba9876543210"
	id := l.submit(j)
	l.publish()
	l.fake.Tick()
	slice := l.lease(id).Slices[0]
	var all []float64
	for _, step := range []struct{ mib, seconds int }{{700, 3}, {4321, 6}, {5555, 1}} {
		end := l.uses(slice.UUID, step.mib)
		for range step.seconds {
			l.sample(0)
			all = append(all, float64(step.mib))
		}
		end()
	}
	if got, err := l.agent.Job(context.Background(), id); err != nil || got.Slices[0].Use == nil ||
		*got.Slices[0].Use != (api.Use{MemoryMiB: 5555, PeakMiB: 5555, Util: -1, Processes: 1}) {
		t.Errorf("while it runs its owner sees %+v, %v", got.Slices[0].Use, err)
	}
	r := l.finish(id)
	bin := float64(slice.MemoryMiB) / usageBins
	if r.Samples != len(all) || r.PeakMiB != 5555 || r.MedianMiB < 4321 || r.MedianMiB > 4321+bin ||
		r.HighMiB != 5555 ||
		r.Util != -1 ||
		r.Seconds != 10 {
		t.Errorf("%+v", r)
	}
	r.Samples, r.PeakMiB, r.MedianMiB, r.HighMiB = 0, 0, 0, 0
	want := predict.Run{
		Job: id, Node: "n1", Key: "0123456789abcdef", Fingerprint: "fedcba9876543210", UID: 20001, User: "user1", Account: "physics", Name: "j",
		Board: "a100", Profile: "2g.10gb", Slices: 1, Start: l.fake.Now().Unix(), Seconds: 10, Util: -1, Processes: 1,
	}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	if len(l.repo.open) != 0 {
		t.Errorf("still open: %v", l.repo.open)
	}
	if l.sample(0); len(l.meters) != 0 {
		t.Error("its slice is still looked at")
	}
}

// Of several slices the one that used most is told; each GPU has its own.
func TestObservedSlices(t *testing.T) {
	l := newLearning(t, 1)
	id := l.submit(job(2, "1g.5gb:2"))
	l.publish()
	l.fake.Tick()
	s := l.lease(id).Slices
	l.uses(s[0].UUID, 300)
	l.uses(s[1].UUID, 900)
	l.sample(0)
	if r := l.finish(id); r.PeakMiB != 900 || r.Slices != 2 || r.Profile != "1g.5gb" {
		t.Errorf("%+v", r)
	}
}

// A run that nobody looked at, or that was shorter than a second, says nothing of its memory.
func TestUnobservedRuns(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.uses(l.lease(id).Slices[0].UUID, 300)
	l.clock += 700 * time.Millisecond
	l.agent.sample(0, l.meters)
	if r := l.finish(id); r.Samples != 0 || r.PeakMiB != 0 || r.Util != -1 || math.Abs(r.Seconds-0.7) > 1e-9 {
		t.Errorf("0.7 s: %+v", r)
	}
	id = l.startNow("1g.5gb:1")
	l.lease(id)
	l.clock += time.Minute
	if r := l.finish(id); r.Samples != 0 || r.PeakMiB != 0 || r.Seconds != 60 {
		t.Errorf("never looked at: %+v", r)
	}
	if r := l.startNow("1g.5gb:2"); len(l.lease(r).Slices) != 0 {
		t.Fatal("two slices with one slot")
	} else if err := l.fake.Finish(r); err != nil || len(l.repo.kept()) != 2 {
		t.Errorf("a lease without slices was kept as a run: %v, %+v", err, l.repo.kept())
	}
}

// The clock on the wall may jump, in either direction: a run lasts as long as it lasts.
func TestClockJumps(t *testing.T) {
	l := newLearning(t, 1)
	for _, jump := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		id := l.startNow("1g.5gb:1")
		l.lease(id)
		l.sample(0)
		l.fake.Advance(jump)
		l.sample(0)
		if r := l.finish(id); r.Seconds != 2 || r.Samples != 2 {
			t.Errorf("after a jump of %v: %+v", jump, r)
		}
	}
}

// An agent that is started anew goes on with what the last one saw, from the same start.
func TestObservationSurvivesARestart(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	uuid := l.lease(id).Slices[0].UUID
	end := l.uses(uuid, 900)
	l.sample(0)
	end()
	l.agent.keep(true)
	l.world.stop()
	l.clock += 20 * time.Second
	l.start()
	l.uses(uuid, 300)
	l.sample(0)
	if r := l.finish(id); r.Samples != 2 || r.PeakMiB != 900 || r.Seconds != 22 {
		t.Errorf("%+v", r)
	}
}

// A repository that cannot be read when the agent starts loses nothing of what an earlier one saw, once it can.
func TestRepositoryComesLate(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	uuid := l.lease(id).Slices[0].UUID
	end := l.uses(uuid, 900)
	l.sample(0)
	end()
	l.agent.keep(true)
	l.world.stop()
	l.repo.shut = errors.New("not yet")
	l.start()
	l.uses(uuid, 300)
	l.sample(0)
	l.agent.keep(true)
	l.repo.shut = nil
	l.agent.keep(true)
	l.sample(0)
	if r := l.finish(id); r.Samples != 3 || r.PeakMiB != 900 {
		t.Errorf("%+v", r)
	}
}

// A run that ended while no agent was there has what was seen before, whether its lease is still there or not.
func TestEndedWithoutAnAgent(t *testing.T) {
	for name, leased := range map[string]bool{"the epilog never came": true, "killed before the run was kept": false} {
		t.Run(name, func(t *testing.T) {
			l := newLearning(t, 1)
			id := l.startNow("1g.5gb:1")
			l.uses(l.lease(id).Slices[0].UUID, 900)
			l.sample(0)
			l.sample(0)
			l.agent.keep(true)
			if !leased {
				if _, err := l.agent.release(l.lease(id), false); err != nil {
					t.Fatal(err)
				}
			}
			l.world.stop()
			l.fake.Epilog(nil)
			if err := l.fake.Finish(id); err != nil {
				t.Fatal(err)
			}
			l.clock += time.Hour
			l.start()
			l.sample(0) // before slurmctld has been asked
			l.publish()
			if err := l.agent.releaseGone(context.Background()); err != nil {
				t.Fatal(err)
			}
			l.agent.keep(false)
			if runs := l.repo.kept(); len(runs) != 1 || runs[0].Seconds != 2 || runs[0].Samples != 2 ||
				runs[0].PeakMiB != 900 {
				t.Errorf("%+v", runs)
			}
			if len(l.repo.open) != 0 {
				t.Errorf("still open: %v", l.repo.open)
			}
		})
	}
}

// A job that slurmctld had after the agent's start, and whose epilog never came: it has what was seen until it was
// gone.
func TestEpilogNeverCame(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	l.sample(0)
	l.agent.keep(true)
	l.world.stop()
	l.start()
	gone := func() {
		t.Helper()
		l.publish()
		if err := l.agent.releaseGone(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	gone()
	l.sample(0)
	l.sample(0)
	l.fake.Epilog(nil)
	if err := l.fake.Finish(id); err != nil {
		t.Fatal(err)
	}
	l.clock += time.Hour
	gone()
	l.agent.keep(false)
	if runs := l.repo.kept(); len(runs) != 1 || runs[0].Seconds != 3 || runs[0].Samples != 3 {
		t.Errorf("%+v", runs)
	}
}

// An agent that is told to stop leaves what it has seen to the next one.
func TestAgentEnds(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	l.world.stop()
	log := logrus.New()
	log.SetOutput(&syncWriter{w: &l.log})
	l.cfg.SampleInterval = 5 * time.Millisecond
	a, err := New(l.cfg, l.node.NVML, l.fake, log.WithField("node", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	a.now = l.fake.Now
	a.Keep(l.repo, l.dbd)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	for {
		lease, err := a.Job(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if lease.Slices[0].Use != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	left, err := parseObservation(l.repo.open[[2]int{int(id), 0}].Text)
	if err != nil || left.Slices[0].Samples == 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// Runs that wait for a repository that does not answer are not more than there is room for.
func TestTooManyRunsWait(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	o := l.agent.seen.open[id]
	for range maxEnded + 5 {
		l.agent.end(o, l.clock)
	}
	if n := len(l.agent.seen.ended); n != maxEnded {
		t.Errorf("%d wait", n)
	}
}

// What cannot be read is begun anew, and what cannot be written costs no job anything and is said once.
func TestRepositoryFails(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	l.agent.keep(true)
	l.world.stop()
	key := [2]int{int(id), 0}
	l.repo.open[key] = Observation{Job: id, Text: []byte("{garbage")}
	l.start()
	l.sample(0)
	l.sample(0)
	if r := l.finish(id); r.Samples != 2 {
		t.Errorf("%+v", r)
	}
	for _, full := range []bool{true, false, true} {
		if l.repo.fill(nil); full {
			l.repo.fill(errors.New("no space left on device"))
		}
		id := l.startNow("1g.5gb:1")
		if got := l.lease(id); len(got.Slices) != 1 {
			t.Fatalf("%+v", got)
		}
		l.sample(0)
		l.agent.keep(true)
		if err := l.fake.Finish(id); err != nil {
			t.Fatal(err)
		}
		l.agent.keep(true)
	}
	if n := strings.Count(l.log.String(), "couldn't keep what jobs use"); n != 2 {
		t.Errorf("said %d times, want once for each time that it began to fail", n)
	}
	if runs := l.repo.kept(); len(runs) != 2 {
		t.Errorf("kept: %+v", runs)
	}
	if n := len(l.agent.seen.ended); n != 0 {
		t.Errorf("%d runs wait in memory", n)
	}
}

// A GPU that is lost ends what can be seen of its jobs, and of no other's.
func TestObservedGPULost(t *testing.T) {
	l := newLearning(t, 2)
	ids := []uint32{l.startNow("7g.40gb:1"), l.startNow("7g.40gb:1")}
	on := map[int]uint32{}
	for _, id := range ids {
		on[l.lease(id).Slices[0].GPU] = id
	}
	for range 3 {
		l.sample(0)
		l.sample(1)
		l.node.Emulator(t, "lose", "0")
	}
	l.sample(0)
	for g, want := range map[int]int{0: 1, 1: 3} {
		if r := l.finish(on[g]); r.Samples != want {
			t.Errorf("the job on GPU %d: %+v, want %d samples", g, r, want)
		}
	}
	if n := strings.Count(l.log.String(), "a job's slice is gone"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// hanging is hardware of which one GPU does not answer a meter.
type hanging struct {
	gpu.Hardware
	hang chan struct{}
}

type hung struct {
	gpu.Meter
	hang chan struct{}
}

func (h hanging) Meter(g int, in gpu.Instance) (gpu.Meter, error) {
	m, err := h.Hardware.Meter(g, in)
	if g == 0 {
		m = hung{m, h.hang}
	}
	return m, err
}

func (h hung) Read() (gpu.Use, error) {
	<-h.hang
	return gpu.Use{}, errors.New("the GPU hung")
}

// A GPU that hangs stops neither the other's samples, nor prologs and epilogs, nor the agent's end.
func TestObservedGPUHangs(t *testing.T) {
	l := newLearning(t, 2)
	h := hanging{l.agent.hw, make(chan struct{})}
	l.agent.hw = h
	l.agent.cfg.SampleInterval = time.Millisecond
	l.agent.clock = monotonic
	ctx, cancel := context.WithCancel(context.Background())
	wait := l.agent.sampleAll(ctx)
	on := map[int]uint32{}
	for range 2 {
		id := l.startNow("7g.40gb:1")
		on[l.lease(id).Slices[0].GPU] = id
	}
	for {
		got, err := l.agent.Job(ctx, on[1])
		if err != nil {
			t.Fatal(err)
		}
		if got.Slices[0].Use != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	l.finish(on[0])
	l.finish(on[1])
	cancel()
	wait()
	close(h.hang)
}
