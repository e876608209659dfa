package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/predict"
	"caelum/internal/trace"
)

// job is one that waits or runs.
type job struct {
	trace.Job
	profiles []string // what it asks for, by kind of GPU model; empty: that kind has none for it
	asksFor  string   // that of the first kind that has any
	asks     string   // all in one string
	size     int      // units, on the first kind that has
	units    int      // units of all its slices, where they are
	said     float64  // how long it is said to run, in seconds
	runs     float64  // how long it will, on the slice that it has or asks for
	needs    string   // the profile that it needs, of the first kind that has any
	work     float64  // unit-seconds that it needs

	since         float64 // when it began to wait
	waited        float64 // how long it waited until it started last
	started, ends float64

	offer offer.Job // it, as the plan of offers has it

	peak   float64 // MiB of memory; 0: it never needs more than it asks for
	dies   float64 // the share of its run after which it is out of memory, if its slice has less
	memory float64 // MiB that the slice has on which it ran last
	dead   bool    // that was too little

	// What is expected of it while it runs: the end, and until when that is what is expected.
	expected, until float64
	version         int

	spots   []place.Spot // with a policy: its slices
	numbers []int        // with fixed layouts: its slices
	kind    int          // where jobs are moved: its profile
}

// slices is how many it needs, at once.
func (j *job) slices() int { return max(j.Slices, 1) }

// simulation is a run of it.
type simulation struct {
	Config
	foresight
	now     float64
	kinds   []*mig.Model // the GPU models that there are
	room    room
	queue   queue
	batches *batches // nil: another discipline
	offers  *offers  // nil: jobs are placed directly
	running endings
	away    endings // requeued; they end when they may start again
	recent  place.Recent

	nodes   [][]int // their GPUs; one node of all if nobody asks
	nodeOf  []int   // by GPU
	borders bool    // somebody asks
	result  Result
}

// ErrNever is why a run has no result: a job that never got room though everything else had ended, since there is none
// for it or the policy turns it down.
var ErrNever = errors.New("waits for ever")

// Run plays the jobs, which must come in the order of submission. The error names the job that is impossible, and what
// is wrong with the configuration.
func Run(c Config, jobs iter.Seq[trace.Job]) (*Result, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := newSimulation(c)
	if err := s.play(jobs); err != nil {
		return nil, err
	}
	s.result.last = max(s.result.last, s.now)
	if s.queue.len() > 0 {
		return nil, fmt.Errorf("job %s %w: %s", s.queue.at(0).ID, ErrNever, s.queue.at(0).asksFor)
	}
	s.result.close()
	return &s.result, nil
}

func newSimulation(c Config) *simulation {
	s := &simulation{Config: c}
	if c.Learn {
		s.learned = &predict.Ends{}
	}
	s.kinds = Kinds(s.GPUs)
	if s.borders = s.Nodes != nil; !s.borders {
		s.Nodes = []int{len(s.GPUs)}
	}
	first := 0
	for k, n := range s.Nodes {
		s.nodes = append(s.nodes, nil)
		for g := first; g < first+n; g++ {
			s.nodes[k], s.nodeOf = append(s.nodes[k], g), append(s.nodeOf, k)
		}
		first += n
	}
	s.room = newRoom(s)
	if s.Discipline == Batches {
		s.batches = newBatches(s.room.(*cut))
	}
	s.result.units = s.room.idle()
	return s
}

// play submits the jobs, and lets all end that can.
func (s *simulation) play(jobs iter.Seq[trace.Job]) error {
	for j := range jobs {
		if err := s.submit(j); err != nil {
			return err
		}
	}
	s.until(math.Inf(1))
	return nil
}

// submit lets time go on until a job comes.
func (s *simulation) submit(t trace.Job) error {
	if !(math.Abs(t.Submit) < math.Inf(1)) {
		return fmt.Errorf("job %s is submitted at %v s", t.ID, t.Submit)
	}
	if t.Submit < s.now {
		return fmt.Errorf("job %s is submitted before the one in front of it", t.ID)
	}
	if !(t.Duration >= 0) || math.IsInf(t.Duration, 1) {
		return fmt.Errorf("job %s runs for %v s", t.ID, t.Duration)
	}
	j, err := s.newJob(t)
	if err != nil {
		return err
	}
	s.until(t.Submit)
	s.advance(t.Submit)
	s.result.submitted(j)
	if s.Memory != nil {
		s.Memory.foresee(s, j)
	}
	s.queue.push(j)
	s.recent.Asked(s.request(j))
	if s.offers != nil {
		s.offers.submitted(j)
	}
	s.schedule()
	return nil
}

// newJob finds out what a job needs on each kind of GPU model.
func (s *simulation) newJob(t trace.Job) (*job, error) {
	j := &job{Job: t, since: t.Submit}
	if s.Stay {
		j.Duration = 1
	}
	for _, b := range s.kinds {
		name, ok := t.On(b)
		if !ok {
			name = ""
		}
		j.profiles = append(j.profiles, name)
	}
	if s.settle(j); j.size == 0 {
		return nil, fmt.Errorf("job %s: no GPU has %s", t.ID, cmp.Or(t.Profile, "what it needs"))
	}
	j.needs, j.work = j.asksFor, float64(j.size*j.slices())*j.runs
	return j, nil
}

// settle works out what follows from the profiles that a job asks for.
func (s *simulation) settle(j *job) {
	j.size = 0
	for k, b := range s.kinds {
		if p, ok := b.ProfileIndex(j.profiles[k]); ok {
			j.size, j.asksFor = b.Profiles[p].Size, j.profiles[k]
			break
		}
	}
	j.asks = strings.Join(j.profiles, " ")
	j.runs = j.Takes(j.asksFor)
	switch j.said = s.said(j.Job); {
	case s.Stay:
		j.said = math.Inf(1)
	case j.Duration > 0:
		j.said *= j.runs / j.Duration
	}
	nodes, each := 1, j.slices()
	if s.borders {
		nodes, each = j.Spread()
	}
	want := offer.Want{Profile: j.asksFor, Count: each}
	for _, name := range j.profiles {
		if name != "" && name != j.asksFor && !slices.Contains(want.Alternatives, name) {
			want.Alternatives = append(want.Alternatives, name)
		}
	}
	j.offer = offer.Job{Wants: []offer.Want{want}, Nodes: nodes, Limit: j.said}
}

// until lets everything end that ends by then, and everybody come back who comes back by then.
func (s *simulation) until(then float64) {
	for {
		next := min(s.running.next(), s.away.next())
		if s.offers != nil {
			next = min(next, s.offers.next())
		}
		if math.IsInf(next, 1) || next > then {
			return
		}
		s.advance(next)
		changed := s.running.next() == next || s.away.next() == next
		for s.running.next() == next {
			s.end(heap.Pop(&s.running).(*job))
		}
		for s.away.next() == next {
			j := heap.Pop(&s.away).(*job)
			s.queue.insert(j)
			s.recent.Asked(s.request(j))
		}
		if changed {
			s.schedule()
		}
		if s.offers != nil {
			s.offers.act()
		}
	}
}

// end takes a job away that has ended, or that is out of memory.
func (s *simulation) end(j *job) {
	s.room.leave(j)
	s.result.ended(j)
	switch {
	case j.dead:
		s.requeue(j)
	case s.learned != nil:
		s.learned.Finished(j.said, j.runs)
	}
}

func (s *simulation) advance(to float64) {
	s.result.pass(s, to-s.now)
	s.now = to
}

// start is called by the room when it has made room for a job, which takes some seconds, on slices of which the
// smallest has this much memory, in MiB.
func (s *simulation) start(j *job, takes float64, memory float64) {
	j.started = s.now + takes
	j.waited += j.started - j.since
	j.memory = memory
	if j.dead = memory < j.peak; j.dead {
		j.runs *= j.dies
	}
	j.ends = j.started + j.runs
	if !s.Stay {
		heap.Push(&s.running, j)
	}
	s.result.started(j)
	s.tell(j)
}

// request is what a policy is told of a job that waits. On unlike GPU models it is told what the job needs on the first
// that has it.
func (s *simulation) request(j *job) place.Request {
	total, _ := s.total(j.said, 0)
	return place.Request{Profile: j.asksFor, Duration: total}
}
