package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// Job is a waiting or running job.
type Job struct {
	trace.Job
	profiles    []string // the requested profile on each GPU model in kinds, or an empty string
	asksFor     string   // the first nonempty element of profiles
	need        int      // the number of the job's profiles and slices in simulation.needs
	size        int      // units of the profile asksFor
	units       int      // the units of all slices that the job holds
	estimate    float64  // estimated run time in seconds; +Inf: unknown
	high        float64  // 90% quantile of the run time in seconds; 0: unknown
	runs        float64  // true run time in seconds, on the job's slice or on the profile asksFor
	needs       string   // the value of asksFor at submission; asksFor may be larger once the job has run out of memory
	unitSeconds float64  // units times run time, for the requested profiles at submission

	submitted     float64 // time of the last submission by the user
	since         float64 // time at which the current wait began
	waited        float64 // total wait in seconds, until the last start
	started, ends float64

	offer offer.Job // the job in the form used by package offer

	memory      float64 // memory in MiB of the smallest slice of the last run
	outOfMemory bool    // true if the job will run out of memory or, with Growth, run again
	resubmits   bool    // true if the user of an absent job will resubmit it

	// expected is the expected end of a running job. The field until is the time until which it remains valid.
	expected, until float64
	version         int // the version of the Corrector when expected was computed

	deadline, latest float64 // the deadline and the latest start in seconds; the deadline is +Inf if there is none

	number int     // the number of jobs that were submitted earlier
	from   float64 // the start of the run or the time of its last move
	lost   float64 // with Moves, the run time that the job has lost in its current run, in seconds
	done   float64 // the fraction of the run that the job completed before it was stopped

	spots   []place.Spot // the job's slices, if a policy places them
	numbers []int        // indices of the slices, if the layouts are fixed
	speed   float64      // the current speed, with Contention
}

// slices returns the number of slices that the job needs at the same time.
func (j *Job) slices() int { return max(j.Slices, 1) }

// simulation is the state of one call to Run.
type simulation struct {
	Config
	foresight
	now       float64
	kinds     []*mig.Model   // the different GPU models, in the order of their first GPU
	needs     map[string]int // numbers the different requests: the number of slices, and the profile on each GPU model
	room      room
	queue     queue
	control   *Control
	scheduler Scheduler // nil if the simulation follows Discipline
	offers    *offers   // nil if the policy places jobs directly
	tick      float64   // the next pass of slurmctld with Offers and fixed layouts; +Inf if it is waiting for an event
	running   endings
	away      endings // requeued jobs; the ends field is the time from which a job may restart
	recent    place.Recent
	earlier   []offer.Submission

	sharing [][]*Job // with Contention, the running jobs on each GPU

	nodes   [][]int // the GPUs of each node; there is a single node if Config.Nodes is nil
	nodeOf  []int   // the node of each GPU
	planned bool    // true if jobs are started by a plan of package offer, because of deadlines or a limit on full GPUs
	perNode bool    // true if a job's slices must be on as many nodes as it requests
	result  Result
}

// ErrNever means that a job cannot start even after all other jobs have ended, because no GPU can hold it or the policy
// rejects it.
var ErrNever = errors.New("can never start")

// Run simulates the jobs, which must be sorted by submission time. It returns an error if the configuration is invalid
// or a job can never start. In the latter case, the error wraps ErrNever and contains the job's ID.
func Run(c Config, jobs iter.Seq[trace.Job]) (*Result, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := newSimulation(c)
	if err := s.submitAll(jobs); err != nil {
		return nil, err
	}
	s.result.last = max(s.result.last, s.now)
	s.expire()
	if s.queue.len() > 0 {
		return nil, fmt.Errorf("job %s %w: %s", s.queue.at(0).ID, ErrNever, s.queue.at(0).asksFor)
	}
	s.result.close()
	return &s.result, nil
}

func newSimulation(c Config) *simulation {
	s := &simulation{Config: c, tick: math.Inf(1), needs: map[string]int{}}
	if c.Corrector != nil {
		s.corrected = c.Corrector()
	}
	s.kinds = Kinds(s.GPUs)
	if s.perNode = s.Nodes != nil; !s.perNode {
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
	s.planned = (s.quota() || s.Deadlines != nil) && s.Policy != nil && s.Discipline != Loss && s.Scheduler == nil
	if s.control = (&Control{s}); s.Scheduler != nil {
		s.scheduler = s.Scheduler(s.control)
	}
	s.result.units = s.room.idle()
	return s
}

// submitAll submits all jobs and then continues the simulation until no more jobs can end.
func (s *simulation) submitAll(jobs iter.Seq[trace.Job]) error {
	for j := range jobs {
		if err := s.submit(j); err != nil {
			return err
		}
	}
	s.until(math.Inf(1))
	return nil
}

// submit advances the time to a job's submission and adds the job to the queue.
func (s *simulation) submit(t trace.Job) error {
	if !(math.Abs(t.Submit) < math.Inf(1)) {
		return fmt.Errorf("job %s: the submission time is %v s, but must be finite", t.ID, t.Submit)
	}
	if t.Submit < s.now {
		return fmt.Errorf("job %s is submitted before the previous job; sort the jobs by submission", t.ID)
	}
	if !(t.Duration >= 0) || math.IsInf(t.Duration, 1) {
		return fmt.Errorf("job %s: the duration is %v s, but must be finite and at least 0", t.ID, t.Duration)
	}
	s.until(t.Submit)
	s.advance(t.Submit)
	j, err := s.newJob(t) // Config.Speeds may depend on the runs that the Observer has received
	if err != nil {
		return err
	}
	s.result.submitted(j)
	switch {
	case s.Memory != nil:
		s.ask(j, 0)
	case s.Growth != nil:
		s.demand(j, s.Growth.Submitted(j.Job))
	}
	s.queue.push(j)
	s.recent.Add(s.request(j))
	s.recordSubmission(j)
	if s.offers != nil {
		s.offers.submitted(j)
	}
	s.schedule()
	return nil
}

// newJob converts a job of the workload and determines the profile that it needs on each GPU model.
func (s *simulation) newJob(t trace.Job) (*Job, error) {
	j := &Job{Job: t, submitted: t.Submit, since: t.Submit, number: s.result.Submitted}
	if s.Stay {
		j.Duration = 1
	}
	for _, b := range s.kinds {
		name, ok := s.expected(t).On(b)
		if !ok {
			name = ""
		}
		j.profiles = append(j.profiles, name)
	}
	if s.settle(j); j.size == 0 {
		return nil, fmt.Errorf("job %s: no GPU has %s", t.ID, cmp.Or(t.Profile, "a profile that is large enough"))
	}
	j.needs, j.unitSeconds = j.asksFor, float64(j.size*j.slices())*j.runs
	return j, nil
}

// settle computes the fields of a job that depend on its requested profiles.
func (s *simulation) settle(j *Job) {
	j.size = 0
	for k, b := range s.kinds {
		if p, ok := b.ProfileIndex(j.profiles[k]); ok {
			j.size, j.asksFor = b.Profiles[p].Size, j.profiles[k]
			break
		}
	}
	asks := fmt.Sprint(j.slices(), j.profiles)
	if _, ok := s.needs[asks]; !ok {
		s.needs[asks] = len(s.needs)
	}
	j.need = s.needs[asks]
	j.runs = j.Takes(j.asksFor)
	switch j.estimate = s.estimate(j.Job); {
	case s.Stay:
		j.estimate = math.Inf(1)
	case j.Duration > 0:
		j.estimate *= j.runs / j.Duration
	}
	if s.High != nil && !s.Stay {
		j.high = s.High(j.Job)
	}
	nodes, each := 1, j.slices()
	if s.perNode {
		nodes, each = j.Spread()
	}
	want := offer.Want{Profile: j.asksFor, Count: each}
	for _, name := range j.profiles {
		if name != "" && name != j.asksFor && !slices.Contains(want.Alternatives, name) {
			want.Alternatives = append(want.Alternatives, name)
		}
	}
	want.Sizes = s.sizes(j)
	j.offer = offer.Job{
		Wants:     []offer.Want{want},
		Nodes:     nodes,
		RunTime:   j.estimate,
		Learned:   s.Estimate == nil || s.corrected != nil || j.high > 0,
		TimeLimit: j.estimate,
	}
	s.setDeadline(j)
}

// until processes all events up to the given time: ends of jobs, returns of requeued jobs, and publications and
// allocations of offers.
func (s *simulation) until(then float64) {
	for {
		next := min(s.running.next(), s.away.next(), s.tick)
		if s.offers != nil {
			next = min(next, s.offers.next())
		}
		if math.IsInf(next, 1) || next > then {
			return
		}
		s.advance(next)
		changed := s.running.next() == next || s.away.next() == next
		for s.running.next() == next {
			s.end(heap.Pop(&s.running).(*Job))
		}
		for s.away.next() == next {
			j := heap.Pop(&s.away).(*Job)
			if j.resubmits {
				s.resubmit(j)
			}
			s.queue.insert(j)
			s.recent.Add(s.request(j))
		}
		if changed {
			s.schedule()
		}
		if s.offers != nil {
			s.offers.act()
		}
		if s.tick <= s.now {
			s.tick = math.Inf(1)
			s.startAll()
		}
	}
}

// end frees the slices of a job whose run has ended, and requeues it if it ran out of memory.
func (s *simulation) end(j *Job) {
	s.room.leave(j)
	s.result.ended(j)
	s.contend(j, false)
	if s.Moves || s.Contention != nil {
		s.segment(j)
		s.count(j)
	}
	if s.scheduler != nil {
		s.scheduler.Left(j)
	}
	switch {
	case s.Growth != nil && s.again(j):
	case j.outOfMemory:
		s.ask(j, j.memory)
		s.absent(j, RequeueDelay)
	case s.corrected != nil:
		s.corrected.Finished(j.estimate*s.takes(j), j.runs)
	}
}

func (s *simulation) advance(to float64) {
	s.result.pass(s, to-s.now)
	s.now = to
}

// start records that slices have been assigned to a job; they are ready after takes seconds. memory is the memory of
// the smallest slice, in MiB.
func (s *simulation) start(j *Job, takes float64, memory float64) {
	j.started = s.now + takes
	j.waited += j.started - j.since
	j.memory = memory
	if j.outOfMemory = false; s.Memory != nil {
		lasts := s.Memory.Lasts(j.Job, memory)
		j.runs, j.outOfMemory = j.runs*lasts, lasts < 1
	}
	j.ends = j.started + j.runs
	j.from, j.lost = j.started, 0
	knowsEnd := !s.Moves && s.Contention == nil
	if s.Growth == nil && (knowsEnd || s.Stay) {
		s.count(j)
	}
	if knowsEnd {
		s.observe(j, j.started, j.ends)
	}
	if s.Stay {
		j.ends = math.Inf(1)
	}
	heap.Push(&s.running, j)
	s.contend(j, true)
}

// count adds a run to the result.
func (s *simulation) count(j *Job) {
	s.result.started(j)
	if s.Observer != nil && !j.outOfMemory {
		s.Observer.Waited(j.ID, j.waited)
	}
}

// request returns a waiting job in the form used by policies. If the cluster has several GPU models, the profile in the
// request is for the first model that has a suitable profile.
func (s *simulation) request(j *Job) place.Request {
	return place.Request{Profile: j.asksFor, Duration: s.runTime(j)}
}
