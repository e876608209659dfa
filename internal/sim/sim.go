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
	"caelum/internal/place"
	"caelum/internal/predict"
	"caelum/internal/trace"
)

// job is one that waits or runs.
type job struct {
	trace.Job
	profiles []string // what it needs, by kind of board; empty: that kind has none for it
	needs    string   // the same in one string
	size     int      // units, on the first kind that has
	units    int      // units of all its slices, where they are
	said     float64  // how long it is said to run, in seconds
	runs     float64  // how long it will, on the slice that it has or needs

	started, ends float64

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
	kinds   []*mig.Board // the boards that there are
	room    room
	queue   queue
	running endings
	recent  place.Recent
	result  Result
}

var errNever = errors.New("waits for ever")

// Run plays the jobs, which must come in the order of submission. The error names the job that is impossible, and what is wrong with
// the configuration.
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
		return nil, fmt.Errorf("job %s %w: %s", s.queue.at(0).ID, errNever, s.queue.at(0).Profile)
	}
	s.result.close()
	return &s.result, nil
}

func newSimulation(c Config) *simulation {
	s := &simulation{Config: c}
	if c.Learn {
		s.learned = &predict.Ends{}
	}
	for _, b := range s.GPUs {
		if !slices.Contains(s.kinds, b) {
			s.kinds = append(s.kinds, b)
		}
	}
	s.room = newRoom(s)
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
	j := &job{Job: t, said: s.said(t)}
	if s.Stay {
		j.Duration, j.said = 1, math.Inf(1)
	}
	for _, b := range s.kinds {
		name, ok := t.On(b)
		if !ok {
			name = ""
		} else if p, _ := b.ProfileIndex(name); j.size == 0 {
			j.size, j.Profile = b.Profiles[p].Size, name
		}
		j.profiles = append(j.profiles, name)
	}
	j.runs = j.Takes(j.Profile)
	if j.Duration > 0 {
		j.said *= j.runs / j.Duration
	}
	j.needs = strings.Join(j.profiles, " ")
	if j.size == 0 {
		return fmt.Errorf("job %s: no GPU has %s", t.ID, cmp.Or(t.Profile, "what it needs"))
	}
	s.until(t.Submit)
	s.advance(t.Submit)
	s.result.submitted(j)
	s.queue.push(j)
	s.recent.Asked(s.request(j))
	s.schedule()
	return nil
}

// until lets everything end that ends by then.
func (s *simulation) until(then float64) {
	for len(s.running) > 0 && s.running[0].ends <= then {
		s.advance(s.running[0].ends)
		for len(s.running) > 0 && s.running[0].ends == s.now {
			j := heap.Pop(&s.running).(*job)
			s.room.leave(j)
			s.result.ended(j)
			if s.learned != nil {
				s.learned.Finished(j.said, j.runs)
			}
		}
		s.schedule()
	}
}

func (s *simulation) advance(to float64) {
	s.result.pass(s, to-s.now)
	s.now = to
}

// start is called by the room when it has made room for a job, which takes some seconds.
func (s *simulation) start(j *job, takes float64) {
	j.started = s.now + takes
	j.ends = j.started + j.runs
	if !s.Stay {
		heap.Push(&s.running, j)
	}
	s.result.started(j)
	s.tell(j)
}

// request is what a policy is told of a job that waits. On unlike boards it is told what the job needs on the first that has it.
func (s *simulation) request(j *job) place.Request {
	total, _ := s.total(j.said, 0)
	return place.Request{Profile: j.Profile, Duration: total}
}
