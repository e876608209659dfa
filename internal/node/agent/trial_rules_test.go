package agent

import (
	"maps"
	"slices"
	"time"

	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// sound checks that the slices that slurmctld can allocate on a node fit on the GPU together with those of the running
// jobs. It is independent of the packages that plan. While a job is completing, no job starts on the node. The caller
// holds t.scheduler.
func (t *trial) sound(name, after string) {
	n, err := t.fake.Node(t.ctx, name)
	if err != nil || n.Is("COMPLETING") {
		return
	}
	q, _ := t.fake.Queue(t.ctx)
	taken := [2][8]bool{1: {true, true, true, true, true, true, true, true}} // the node has one GPU
	var loose []string
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks++
	for _, j := range q.On(name) {
		if !j.Holds() {
			continue
		}
		if l, ok := t.held[leaseKey{j.ID, name}]; ok {
			occupy(&taken[0], l)
			continue
		}
		for _, g := range j.PerNode.Named("mig") {
			for range g.Count {
				loose = append(loose, g.Type)
			}
		}
	}
	free, used := n.Gres.Profiles(), n.GresUsed.Profiles()
	for _, p := range soakProfiles {
		for range free[p] - used[p] {
			loose = append(loose, p)
		}
	}
	if !fits(&taken, loose) {
		t.t.Errorf("%v: %s, after %s: %v cannot all be carved alongside %v",
			time.Since(t.began), name, after, loose, taken[0])
		t.addLine("unsound: " + name)
	}
}

// occupy marks the units of a lease.
func occupy(units *[8]bool, l api.Lease) (overlap bool) {
	for _, s := range l.Slices {
		for u := s.Start; u < s.Start+s.Size; u++ {
			overlap = overlap || units[u]
			units[u] = true
		}
	}
	return overlap
}

// overlaps checks that no two leases on a node share units. The caller holds t.mu.
func (t *trial) overlaps(node string) {
	var units [8]bool
	for k, l := range t.held {
		if k.node == node && occupy(&units, l) {
			t.t.Errorf("leases on %s overlap: %+v", node, t.held)
		}
	}
}

// serves reports whether slices are those that a job requested. All jobs of a trial request one profile.
func serves(all []api.Slice, j slurm.Job) bool {
	want := j.PerNode.Named("mig")[0]
	return len(all) == want.Count && !slices.ContainsFunc(all, func(s api.Slice) bool { return s.Profile != want.Type })
}

// freeze changes the queue once more, and then stops submissions and the ends and starts of jobs.
func (t *trial) freeze() {
	t.mu.Lock()
	t.settled = true
	t.mu.Unlock()
	t.scheduler.Lock()
	t.setClock()
	t.frozen, t.closed = true, true
	t.endOne()
	for range 2 {
		t.submitRandom()
	}
	t.scheduler.Unlock()
	t.logf("the jobs no longer change")
}

// poll returns the longest time between two polls of an agent.
func (t *trial) poll() time.Duration {
	if slices.Contains(t.injected, "slow slurmctld") {
		return longestSlowPoll
	}
	return longestPoll
}

// checkRecovery waits until the offers must be right, and checks them and the number of active planners.
func (t *trial) checkRecovery() {
	const requests = 3 * time.Second // the time that the last pass takes
	began, since := time.Now(), time.Time{}
	expected := make([][]expectation, len(t.policies()))
	var got map[string]map[string]int
	check := func() {
		var right bool
		if got, right = t.right(expected); !right {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
	}
	for time.Since(began) < part.Expiry+2*t.poll()+requests {
		check()
		time.Sleep(500 * time.Millisecond)
	}
	changes := t.writerChanges()
	for range 30 {
		if check(); since.IsZero() {
			t.t.Errorf("%v: offers %v, want one of %v", time.Since(t.began), got, expected)
			break
		}
		time.Sleep(time.Second)
	}
	t.recovery = since.Sub(began)
	if n := t.writerChanges() - changes; n > 0 {
		t.t.Errorf("two planners write: the writer changed %d times", n)
	}
}

func (t *trial) writerChanges() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changes
}

// expectation is a plan for the queue: each node's offers. at is the last time at which it was the plan.
type expectation struct {
	offers map[string]map[string]int
	at     time.Time
}

// policies returns the policies of the planners of the trial. The agents have the first one.
func (t *trial) policies() []place.Policy {
	if slices.Contains(t.injected, "two planners") {
		return []place.Policy{place.Reach, place.Lifetime{}}
	}
	return []place.Policy{place.Reach}
}

// right reports whether the offers of all nodes are those of a plan for the queue with one policy. expected contains
// the plans for each policy. Because the plan of an agent may be as old as its last pass, it keeps them for a while.
func (t *trial) right(expected [][]expectation) (got map[string]map[string]int, right bool) {
	t.scheduler.Lock()
	defer t.scheduler.Unlock()
	t.setClock()
	nodes, _ := t.fake.Nodes(t.ctx)
	queue, _ := t.fake.Queue(t.ctx)
	got = map[string]map[string]int{}
	for _, n := range nodes {
		free := n.Free("mig")
		delete(free, slurm.ClosedType)
		maps.DeleteFunc(free, func(_ string, n int) bool { return n <= 0 })
		got[n.Name] = free
	}
	for k, policy := range t.policies() {
		v := plan.New(plan.Snapshot{Nodes: nodes, Queue: queue, At: time.Now()},
			plan.Settings{Policy: policy, Tightest: true}, nil)
		made := v.Plan()
		want := expectation{map[string]map[string]int{}, time.Now()}
		for m, n := range v.Members {
			want.offers[n.Name] = v.Counts(made, m)
		}
		expected[k] = append(slices.DeleteFunc(expected[k], func(e expectation) bool {
			return time.Since(e.at) > t.poll() || maps.EqualFunc(e.offers, want.offers, maps.Equal)
		}), want)
		matches := true
		for node, offers := range got {
			matches = matches && slices.ContainsFunc(expected[k], func(e expectation) bool {
				return maps.Equal(e.offers[node], offers)
			})
		}
		right = right || matches
	}
	return got, right
}

// drain lets the jobs start and end until no job waits.
func (t *trial) drain() {
	close(t.draining)
	t.scheduler.Lock()
	t.frozen = false
	t.scheduler.Unlock()
	for range 600 {
		time.Sleep(2 * time.Second)
		t.scheduler.Lock()
		t.setClock()
		q, _ := t.fake.Queue(t.ctx)
		if len(q.Waiting) > 0 {
			t.endOne()
		}
		t.scheduler.Unlock()
		starting := func(j slurm.Job) bool { return j.Holds() && !t.serves(j) }
		if len(q.Waiting) == 0 && !slices.ContainsFunc(q.All, starting) {
			return
		}
	}
	q, _ := t.fake.Queue(t.ctx)
	t.t.Errorf("%d jobs still wait, among them %+v", len(q.Waiting), q.Waiting[0].Job)
}
