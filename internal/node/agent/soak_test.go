package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"caelum/internal/node/publish"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// TestSoak runs the agent with random actions of users and slurmctld and with crashes. Jobs may start and end between
// any two of the agent's calls. A simple oracle checks every write: the slices of all jobs that slurmctld may start
// after the write must fit on the GPUs together with the slices of the running jobs. The agent must not requeue any
// jobs, and no two jobs may hold overlapping slices. With -short, it uses 3 seeds instead of 10, and a fifth of the
// steps.
func TestSoak(t *testing.T) {
	seeds, steps := uint64(10), 150
	if testing.Short() {
		seeds, steps = 3, 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { soak(t, seed, steps) })
	}
}

type soaker struct {
	*world
	mu  sync.Mutex // protects rng, because hooks run in other goroutines
	rng *rand.Rand
	// scheduler is held while slurmctld starts jobs, and by the oracle, whose reads must all show the same state.
	scheduler sync.Mutex
	// epilogs is held while epilogs run, and while none may begin. An agent must not stop while an epilog runs.
	epilogs sync.Mutex
	// quiet prevents slurmctld from starting jobs while the test waits for prologs.
	quiet atomic.Bool
	// restart causes a restart of slurmctld before the next pass.
	restart atomic.Bool
	live    []uint32 // jobs that have not ended
	// writes is the number of writes that the oracle has checked.
	writes int
}

func (s *soaker) chance(p float64) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.rng.Float64() < p }
func (s *soaker) below(n int) int       { s.mu.Lock(); defer s.mu.Unlock(); return s.rng.IntN(n) }

var soakProfiles = []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}

func soak(t *testing.T, seed uint64, steps int) {
	s := &soaker{world: newWorld(t, 2), rng: rand.New(rand.NewPCG(seed, 42))}
	s.setHooks()
	for range steps {
		s.step()
		s.overlaps()
	}
	s.prologs.Wait()
	s.epilogs.Lock() // and never unlocked, so that no job ends from now on
	s.publish2()
	n, _ := s.fake.Node(context.Background(), "n1")
	if n.Is("DRAIN") {
		t.Errorf("the node drained: %s", n.Reason)
	}
	if s.total() != 56 {
		t.Errorf("total of gres/mig is %d, want 56 always", s.total())
	}
	if s.writes < steps/20 {
		t.Errorf("the oracle saw %d writes only", s.writes)
	}
	t.Logf("%d writes checked", s.writes)
}

// setHooks sets what slurmd does, and what slurmctld and users do between the agent's calls.
func (s *soaker) setHooks() {
	// A prolog whose agent has ended repeats its request to the next one.
	s.fake.Prolog(func(j slurm.Job, _ string) {
		s.prologs.Add(1)
		go func() {
			defer s.prologs.Done()
			time.Sleep(time.Duration(s.below(3)) * time.Millisecond)
			s.prolog(j)
		}()
	})
	// The next job may get a job's slices during its epilog.
	s.fake.Epilog(func(j slurm.Job, _ string) {
		s.world.mu.Lock()
		delete(s.leases, j.ID)
		s.world.mu.Unlock()
		if err := s.current().Release(context.Background(), j.ID, j.Restarts); err != nil {
			s.t.Errorf("epilog of job %d: %v", j.ID, err)
		}
	})
	// slurmctld restarts only before a pass reads slurmctld's state. A restart between a pass's read and its write
	// would clear the used counts on which the write is based. Until the pass reads the node again, too many slices
	// would be free (docs/internals/publication.md, step 6; TestReconfigureBeforeTheRaise), and the oracle would report
	// an error.
	s.fake.Before(func(c slurmtest.Call) error {
		if c.Op == "Nodes" && s.restart.Swap(false) {
			if nodes := s.below(4); nodes > 0 {
				s.fake.Recount(nodes)
			} else {
				s.fake.Restart()
			}
		}
		return nil
	})
	s.fake.After(func(c slurmtest.Call) {
		if c.Op == "UpdateNode" && c.Err == nil {
			s.scheduler.Lock()
			s.check(c.String())
			s.scheduler.Unlock()
			s.mu.Lock()
			s.writes++
			s.mu.Unlock()
		}
		if s.chance(0.1) {
			s.finish()
		}
		if s.chance(0.3) {
			s.tick()
		}
	})
}

// step performs one random action: a submission, the end of a job, a pass, a scheduling cycle, or a restart.
func (s *soaker) step() {
	switch s.below(8) {
	case 0, 1, 2:
		j := job(1, soakProfiles[s.below(6)])
		if s.chance(0.15) {
			j = job(2, soakProfiles[s.below(4)]+":2")
		}
		if id, err := s.fake.Submit(j); err == nil {
			s.live = append(s.live, id)
		} else if !errors.Is(err, slurmtest.ErrRefused) {
			s.t.Fatal(err)
		}
	case 3, 4:
		if len(s.live) == 0 {
			return
		}
		k := s.below(len(s.live))
		id := s.live[k]
		s.epilogs.Lock() // because slurmd runs a job's epilog after its prolog
		defer s.epilogs.Unlock()
		if s.chance(0.3) { // a job that is cancelled while its prolog runs
			s.fake.Cancel(id)
		} else {
			s.prologs.Wait()
			s.fake.End(id)
		}
		s.live = slices.Delete(s.live, k, k+1)
		s.prologs.Wait()
		s.fake.RunEpilogs()
	case 5:
		s.publish2()
	case 6:
		s.tick()
	case 7:
		s.restartSomething()
	}
}

// restartSomething restarts the agent, slurmctld or slurmd.
func (s *soaker) restartSomething() {
	switch s.below(6) {
	case 0:
		s.quiet.Store(true)
		s.prologs.Wait()
		s.epilogs.Lock()
		s.stop()
		s.quiet.Store(false)
		s.tick() // jobs may start without an agent; their prologs wait for the next one
		s.start()
		s.epilogs.Unlock()
	case 1:
		s.restart.Store(true)
		s.publish2()
	case 2:
		if err := s.fake.RestartSlurmd("n1"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// tick makes slurmctld start the jobs that fit, unless the oracle is checking a write.
func (s *soaker) tick() {
	if !s.quiet.Load() && s.scheduler.TryLock() {
		defer s.scheduler.Unlock()
		s.check("the last write")
		s.fake.Tick()
	}
}

// finish ends a job that has a lease, and runs its epilog. Because an epilog that needs a pass waits for the current
// pass to end, finish waits for it only for a short time.
func (s *soaker) finish() {
	if !s.epilogs.TryLock() {
		return
	}
	s.world.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.leases))
	s.world.mu.Unlock()
	if len(ids) == 0 || s.fake.End(ids[s.below(len(ids))]) != nil {
		s.epilogs.Unlock()
		return
	}
	done := make(chan struct{})
	go func() {
		defer s.epilogs.Unlock()
		s.fake.RunEpilogs()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Millisecond):
	}
}

// publish2 publishes, and ignores publish.ErrBusy.
func (s *soaker) publish2() {
	if err := s.agent.Publish(context.Background()); err != nil && !errors.Is(err, publish.ErrBusy) {
		s.t.Fatalf("publish: %v", err)
	}
}

// overlaps checks that no lease has an error and that no two leases share units.
func (s *soaker) overlaps() {
	s.t.Helper()
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	held := map[[2]int]uint32{}
	for id, l := range s.leases {
		if l.Error != "" && l.Error != "the job is ending" && l.Error != "slurmctld no longer knows this job" {
			s.t.Fatalf("job %d: %s", id, l.Error)
		}
		for _, sl := range l.Slices {
			for u := sl.Start; u < sl.Start+sl.Size; u++ {
				if other, taken := held[[2]int{sl.GPU, u}]; taken {
					s.t.Fatalf("jobs %d and %d both hold unit %d of GPU %d", id, other, u, sl.GPU)
				}
				held[[2]int{sl.GPU, u}] = id
			}
		}
	}
}

// check is the oracle. After a write, slurmctld may allocate as many slices of each profile as the total minus the used
// count. These slices must fit on the GPUs together with the slices of the running jobs. The slices of a job with a
// lease have fixed placements, and the slices of any other job may have any placement. While a job is completing, no
// job starts on the node. The caller holds s.scheduler.
func (s *soaker) check(after string) {
	n, err := s.fake.Node(context.Background(), "n1")
	if err != nil || n.Is("COMPLETING") {
		return
	}
	q, err := s.fake.Queue(context.Background())
	jobs := q.On("n1")
	if err != nil {
		return
	}
	var taken [2][8]bool
	var loose []string
	s.world.mu.Lock()
	for _, j := range jobs {
		if !j.Holds() {
			continue
		}
		if l, ok := s.leases[j.ID]; ok {
			for _, sl := range l.Slices {
				for u := sl.Start; u < sl.Start+sl.Size; u++ {
					taken[sl.GPU][u] = true
				}
			}
			continue
		}
		for _, g := range j.PerNode.Named("mig") {
			for range g.Count {
				loose = append(loose, g.Type)
			}
		}
	}
	s.world.mu.Unlock()
	free, used := n.Gres.Profiles(), n.GresUsed.Profiles()
	for _, p := range soakProfiles {
		for range free[p] - used[p] {
			loose = append(loose, p)
		}
	}
	if !fits(&taken, loose) {
		s.t.Errorf("after %s: %v cannot all be carved alongside %v", after, loose, taken)
	}
}

// fits reports whether the profiles fit on two A100s. It begins with the largest profile and tries every start of each
// profile. The sizes and starts come from NVIDIA's MIG user guide.
func fits(taken *[2][8]bool, loose []string) bool {
	size := map[string]int{"1g.5gb": 1, "1g.10gb": 2, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}
	starts := map[string][]int{
		"1g.5gb":  {0, 1, 2, 3, 4, 5, 6},
		"1g.10gb": {0, 2, 4, 6},
		"2g.10gb": {0, 2, 4},
		"3g.20gb": {0, 4},
		"4g.20gb": {0},
		"7g.40gb": {0},
	}
	if len(loose) == 0 {
		return true
	}
	slices.SortFunc(loose, func(a, b string) int { return size[b] - size[a] })
	p := loose[0]
	for g := range taken {
		for _, start := range starts[p] {
			free := true
			for u := start; u < start+size[p]; u++ {
				free = free && !taken[g][u]
			}
			if !free {
				continue
			}
			next := *taken
			for u := start; u < start+size[p]; u++ {
				next[g][u] = true
			}
			if fits(&next, slices.Clone(loose[1:])) {
				return true
			}
		}
	}
	return false
}
