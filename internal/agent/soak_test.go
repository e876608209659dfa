package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// TestSoak plays users, slurmctld and crashes against the agent at random, with jobs starting between any two calls
// that the agent makes, and holds every write against a plain oracle: whatever slurmctld may start after it can be
// carved beside what runs. No job may be sent back, no two jobs may hold overlapping slices.
func TestSoak(t *testing.T) {
	steps := 150
	if testing.Short() {
		steps = 30
	}
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { soak(t, seed, steps) })
	}
}

type soaker struct {
	*world
	mu  sync.Mutex // the generator's: hooks run in other goroutines
	rng *rand.Rand
	// scheduler is held while slurmctld starts jobs, and by the oracle, which must see one moment.
	scheduler sync.Mutex
	// quiet keeps slurmctld from starting anything while prologs are waited for.
	quiet atomic.Bool
	// restart has slurmctld restart before the next pass.
	restart atomic.Bool
	// oracle counts the writes it has looked at.
	writes int
}

func (s *soaker) chance(p float64) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.rng.Float64() < p }
func (s *soaker) below(n int) int       { s.mu.Lock(); defer s.mu.Unlock(); return s.rng.IntN(n) }

var soakProfiles = []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}

func soak(t *testing.T, seed uint64, steps int) {
	s := &soaker{world: newWorld(t, 2), rng: rand.New(rand.NewPCG(seed, 42))}
	// Prologs outlive an agent: one that is cut off asks the next.
	s.fake.Prolog(func(j slurm.Job, _ string) {
		s.prologs.Add(1)
		go func() {
			defer s.prologs.Done()
			time.Sleep(time.Duration(s.below(3)) * time.Millisecond)
			s.prolog(j)
		}()
	})
	// slurmctld restarts before a pass reads it. Between a pass's read and its write, used would be forgotten that the
	// write counts on: more is then free for the moment until the pass has looked again (docs/internals.md, step 6;
	// TestReconfigureBeforeTheRaise), which the oracle would find.
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
			s.check(c)
		}
		if s.chance(0.3) {
			s.tick()
		}
	})
	var live []uint32
	for range steps {
		switch s.below(8) {
		case 0, 1, 2:
			j := job(1, soakProfiles[s.below(6)])
			if s.chance(0.15) {
				j = job(2, soakProfiles[s.below(4)]+":2")
			}
			if id, err := s.fake.Submit(j); err == nil {
				live = append(live, id)
			} else if !errors.Is(err, slurmtest.ErrRefused) {
				t.Fatal(err)
			}
		case 3, 4:
			if len(live) == 0 {
				continue
			}
			k := s.below(len(live))
			id := live[k]
			if s.chance(0.3) { // a job that is cancelled while its prolog runs
				s.fake.Cancel(id)
			} else {
				s.prologs.Wait()
				s.fake.End(id)
			}
			live = slices.Delete(live, k, k+1)
			s.prologs.Wait() // slurmd runs a job's epilog after its prolog
			s.fake.RunEpilogs()
		case 5:
			s.publish2()
		case 6:
			s.tick()
		case 7:
			switch s.below(6) {
			case 0:
				s.quiet.Store(true)
				s.prologs.Wait()
				s.stop()
				s.quiet.Store(false)
				s.tick() // what was on offer may start while there is no agent: its prolog waits for the next
				s.start()
			case 1:
				s.restart.Store(true)
				s.publish2()
			case 2:
				if err := s.fake.RestartSlurmd("n1"); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.overlaps()
	}
	s.prologs.Wait()
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

// tick has slurmctld start what fits, unless the oracle is looking.
func (s *soaker) tick() {
	if !s.quiet.Load() && s.scheduler.TryLock() {
		defer s.scheduler.Unlock()
		s.fake.Tick()
	}
}

// publish2 publishes; that jobs keep starting is no failure here.
func (s *soaker) publish2() {
	if err := s.agent.Publish(context.Background()); err != nil && !errors.Is(err, errBusy) {
		s.t.Fatalf("publish: %v", err)
	}
}

// overlaps looks at the leases: no job was refused a slice, and none shares units with another.
func (s *soaker) overlaps() {
	s.t.Helper()
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	held := map[[2]int]uint32{}
	for id, l := range s.leases {
		if l.Error != "" && l.Error != "the job is ending" && l.Error != "slurmctld does not know this job any more" {
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

// check is the oracle. After a write slurmctld may start totals less used of each profile; together with the jobs that
// it runs, those with a lease where they are and the others anywhere, all of it must fit on the GPUs. A job that is
// completing does not count: nothing starts on the node before its epilog has published.
func (s *soaker) check(c slurmtest.Call) {
	s.scheduler.Lock()
	defer s.scheduler.Unlock()
	n, err := s.fake.Node(context.Background(), "n1")
	if err != nil {
		return
	}
	q, err := s.fake.Queue(context.Background())
	jobs := q.On("n1")
	if err != nil {
		return
	}
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
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
		for _, g := range only(j.PerNode, "mig") {
			for range g.Count {
				loose = append(loose, g.Type)
			}
		}
	}
	s.world.mu.Unlock()
	free, used := count(n.Gres), count(n.GresUsed)
	for _, p := range soakProfiles {
		for range free[p] - used[p] {
			loose = append(loose, p)
		}
	}
	if !fits(&taken, loose) {
		s.t.Errorf(
			"after write %d (%s): %v cannot all be carved beside %v",
			c.Seq,
			slurm.FormatGRES(c.GRES),
			loose,
			taken,
		)
	}
}

// fits packs profiles onto two A100s by trying every start, largest first: sizes and starts as NVIDIA's user guide has
// them.
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
