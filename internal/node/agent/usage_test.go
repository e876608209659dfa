package agent

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/usage"
	"caelum/internal/node/usage/usagetest"
	"caelum/internal/slurm"
)

// learning is a world whose agents have a repository, access to an emulated slurmdbd, and a clock that the test sets.
type learning struct {
	*world
	repo     *usagetest.Repository
	dbd      *usagetest.Accounting
	clock    time.Duration
	samplers map[int]*usage.Sampler
}

func newLearning(t testing.TB, gpus int) *learning {
	l := &learning{
		world: newWorld(t, gpus),
		repo:  usagetest.NewRepository(), dbd: usagetest.NewAccounting(), clock: usage.Monotonic(),
	}
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
	l.samplers = map[int]*usage.Sampler{}
}

// sample advances the clock by one second and samples a GPU.
func (l *learning) sample(g int) {
	l.clock += time.Second
	l.agent.sampleOnce(g, l.samplers)
}

// sampleOnce takes one sample of a GPU. samplers holds the samplers of earlier calls.
func (a *Agent) sampleOnce(g int, samplers map[int]*usage.Sampler) {
	if samplers[g] == nil {
		samplers[g] = a.usage.Sampler(g)
	}
	samplers[g].Sample()
}

// uses starts a process on a slice, and waits until it has allocated memory. The returned function ends it.
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

// finish ends a job and returns its run.
func (l *learning) finish(id uint32) predict.Run {
	l.t.Helper()
	if err := l.fake.Finish(id); err != nil {
		l.t.Fatal(err)
	}
	l.agent.usage.Flush(false)
	runs := l.repo.Kept()
	k := slices.IndexFunc(runs, func(r predict.Run) bool { return r.Job == id })
	if k < 0 {
		l.t.Fatalf("the repository has no run of job %d: %+v", id, runs)
	}
	return runs[k]
}

// TestObservedRun checks an ordinary run. The job's memory usage rises and falls, and its owner can see it. At the
// end, the repository must have a run with the peak, the quantiles, the duration, and the key that job_submit.lua
// computed for the job.
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
		*got.Slices[0].Use != (api.Use{MemoryMiB: 5555, PeakMiB: 5555, Util: -1, Processes: 1, ForecastMiB: 5555}) {
		t.Errorf("while it runs its owner sees %+v, %v", got.Slices[0].Use, err)
	}
	r := l.finish(id)
	const bins = 128 // bins in a slice's memory
	bin := float64(slice.MemoryMiB) / bins
	if r.Samples != len(all) || r.PeakMiB != 5555 || r.MedianMiB < 4321 || r.MedianMiB > 4321+bin ||
		r.HighMiB != 5555 ||
		r.Util != -1 ||
		r.Seconds != 10 {
		t.Errorf("%+v", r)
	}
	r.Samples, r.PeakMiB, r.MedianMiB, r.HighMiB = 0, 0, 0, 0
	want := predict.Run{
		Job: id, Node: "n1", Key: "0123456789abcdef", Fingerprint: "fedcba9876543210",
		UID: 20001, User: "user1", Account: "physics", Name: "j",
		GPUType: "a100", Profile: "2g.10gb", Slices: 1, Start: l.fake.Now().Unix(), Seconds: 10, Util: -1, Processes: 1,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
	if len(l.repo.Open) != 0 {
		t.Errorf("still open: %v", l.repo.Open)
	}
	if l.sample(0); l.samplers[0].Slices() != 0 {
		t.Error("the job's slice is still sampled")
	}
}

// TestObservedSlices checks that the run of a job with several slices records the highest usage among them.
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

// TestUnobservedRuns checks that the agent stores a run without a peak if the run has no samples or is shorter than a
// second.
func TestUnobservedRuns(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.uses(l.lease(id).Slices[0].UUID, 300)
	l.clock += 700 * time.Millisecond
	l.agent.sampleOnce(0, l.samplers)
	if r := l.finish(id); r.Samples != 0 || r.PeakMiB != 0 || r.Util != -1 || math.Abs(r.Seconds-0.7) > 1e-9 {
		t.Errorf("0.7 s: %+v", r)
	}
	id = l.startNow("1g.5gb:1")
	l.lease(id)
	l.clock += time.Minute
	if r := l.finish(id); r.Samples != 0 || r.PeakMiB != 0 || r.Seconds != 60 {
		t.Errorf("never sampled: %+v", r)
	}
	if r := l.startNow("1g.5gb:2"); len(l.lease(r).Slices) != 0 {
		t.Fatal("two slices with one slot")
	} else if err := l.fake.Finish(r); err != nil || len(l.repo.Kept()) != 2 {
		t.Errorf("a lease without slices was stored as a run: %v, %+v", err, l.repo.Kept())
	}
}

// TestClockJumps checks that a run's duration does not change if the system time jumps in either direction.
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

// newStopped returns a world whose agent has stopped. It has sampled 900 MiB once on a job's slice, and stored this
// observation. The job is still running.
func newStopped(t *testing.T) (l *learning, id uint32, uuid string) {
	l = newLearning(t, 1)
	id = l.startNow("1g.5gb:1")
	uuid = l.lease(id).Slices[0].UUID
	end := l.uses(uuid, 900)
	l.sample(0)
	end()
	l.agent.usage.Flush(true)
	l.world.stop()
	return l, id, uuid
}

// TestObservationSurvivesARestart checks that a new agent continues the observation of the previous agent and keeps the
// start time.
func TestObservationSurvivesARestart(t *testing.T) {
	l, id, uuid := newStopped(t)
	l.clock += 20 * time.Second
	l.start()
	l.uses(uuid, 300)
	l.sample(0)
	if r := l.finish(id); r.Samples != 2 || r.PeakMiB != 900 || r.Seconds != 22 {
		t.Errorf("%+v", r)
	}
}

// TestRepositoryComesLate checks that the observations of an earlier agent are not lost if the agent cannot read the
// repository at its start.
func TestRepositoryComesLate(t *testing.T) {
	l, id, uuid := newStopped(t)
	l.repo.Unreadable = errors.New("not yet")
	l.start()
	l.uses(uuid, 300)
	l.sample(0)
	l.agent.usage.Flush(true)
	l.repo.Unreadable = nil
	l.agent.usage.Flush(true)
	l.sample(0)
	if r := l.finish(id); r.Samples != 3 || r.PeakMiB != 900 {
		t.Errorf("%+v", r)
	}
}

// TestEndedWithoutAnAgent checks a run that ended while no agent was running. The next agent must store the run with
// the earlier samples, whether or not the run's lease exists.
func TestEndedWithoutAnAgent(t *testing.T) {
	for name, leased := range map[string]bool{"the epilog never came": true, "killed before the run was kept": false} {
		t.Run(name, func(t *testing.T) {
			l := newLearning(t, 1)
			id := l.startNow("1g.5gb:1")
			l.uses(l.lease(id).Slices[0].UUID, 900)
			l.sample(0)
			l.sample(0)
			l.agent.usage.Flush(true)
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
			l.sample(0) // before the first request to slurmctld
			l.publish()
			if err := l.agent.releaseGone(context.Background()); err != nil {
				t.Fatal(err)
			}
			l.agent.usage.Flush(false)
			if runs := l.repo.Kept(); len(runs) != 1 || runs[0].Seconds != 2 || runs[0].Samples != 2 ||
				runs[0].PeakMiB != 900 {
				t.Errorf("%+v", runs)
			}
			if len(l.repo.Open) != 0 {
				t.Errorf("still open: %v", l.repo.Open)
			}
		})
	}
}

// TestEpilogNeverCame checks the run of a job whose epilog never calls the agent. slurmctld still lists the job when
// the agent starts. The run must have the samples up to the job's end.
func TestEpilogNeverCame(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	l.sample(0)
	l.agent.usage.Flush(true)
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
	l.agent.usage.Flush(false)
	if runs := l.repo.Kept(); len(runs) != 1 || runs[0].Seconds != 3 || runs[0].Samples != 3 {
		t.Errorf("%+v", runs)
	}
}

// TestAgentEnds checks that an agent that is stopped stores its observations for the next agent.
func TestAgentEnds(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	l.world.stop()
	log := logrus.New()
	log.SetOutput(&l.log)
	l.cfg.SampleInterval = 5 * time.Millisecond
	a, err := l.newAgent(log)
	if err != nil {
		t.Fatal(err)
	}
	a.node.Now = l.fake.Now
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
	var left struct{ Slices []struct{ Samples int } }
	err = json.Unmarshal(l.repo.Open[[2]int{int(id), 0}].Text, &left)
	if err != nil || len(left.Slices) != 1 || left.Slices[0].Samples == 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestRepositoryFails checks two errors of the repository. If an observation cannot be read, the agent must start a
// new one. If the repository cannot be written, the agent must log the error once and continue to serve jobs.
func TestRepositoryFails(t *testing.T) {
	l := newLearning(t, 1)
	id := l.startNow("1g.5gb:1")
	l.lease(id)
	l.agent.usage.Flush(true)
	l.world.stop()
	key := [2]int{int(id), 0}
	l.repo.Open[key] = repo.Observation{Job: id, Text: []byte("{garbage")}
	l.start()
	l.sample(0)
	l.sample(0)
	if r := l.finish(id); r.Samples != 2 {
		t.Errorf("%+v", r)
	}
	for _, full := range []bool{true, false, true} {
		if l.repo.Fill(nil); full {
			l.repo.Fill(errors.New("no space left on device"))
		}
		id := l.startNow("1g.5gb:1")
		if got := l.lease(id); len(got.Slices) != 1 {
			t.Fatalf("%+v", got)
		}
		l.sample(0)
		l.agent.usage.Flush(true)
		if err := l.fake.Finish(id); err != nil {
			t.Fatal(err)
		}
		l.agent.usage.Flush(true)
	}
	if n := strings.Count(l.log.String(), "couldn't store the usage of jobs"); n != 2 {
		t.Errorf("logged %d times, want once for each time that the writes began to fail", n)
	}
	if runs := l.repo.Kept(); len(runs) != 2 {
		t.Errorf("kept: %+v", runs)
	}
}

// TestObservedGPULost checks that the loss of a GPU ends the samples of the jobs on it, but not of others.
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
	if n := strings.Count(l.log.String(), "couldn't sample the usage of a job"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// hanging is a driver with one GPU whose meter hangs in Read.
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

// TestObservedGPUHangs checks that a GPU that hangs blocks neither the samples of the other GPU, nor prologs and
// epilogs, nor the end of the agent.
func TestObservedGPUHangs(t *testing.T) {
	l := newLearning(t, 2)
	h := hanging{l.agent.hw, make(chan struct{})}
	l.agent.hw = h
	l.agent.usage.Interval = time.Millisecond
	l.agent.clock = usage.Monotonic
	ctx, cancel := context.WithCancel(context.Background())
	wait := l.agent.usage.Start(ctx, []int{0, 1})
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
