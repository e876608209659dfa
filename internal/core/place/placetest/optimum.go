package placetest

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Job is a job that [Optimum] schedules: an instance of a profile with a duration.
type Job struct {
	Profile  string
	Arrival  float64 // seconds
	Duration float64 // seconds
}

// Rules determines which schedules are allowed.
type Rules struct {
	// FIFO means that jobs start in the given order, which must be the order of their arrival. Without FIFO, jobs can
	// start in any order.
	FIFO bool
	// Migration means that instances can be moved at any time without cost, so only the sizes of the instances matter.
	// No placement policy can perform better than an optimal schedule with migration.
	Migration bool
}

// Optimum returns the smallest total wait, in seconds, of any schedule of the jobs on the GPUs, with full knowledge of
// the future. The result is +Inf if any of the jobs does not fit on any GPU. Optimum assumes that busy instances remain
// forever, ignores idle instances, and never stops a job. The search is exact. It is practical for up to about ten jobs
// in FIFO order or seven jobs in any order.
//
// The search tries all orders of starts and, without migration, all placements of each job. For a given order and given
// placements, every job starts as soon as possible, because an earlier start results in an earlier end and does not
// delay any later job. The search abandons a branch if the waits that are already certain exceed the best result so
// far. No job starts earlier than the jobs that precede it in the order.
func Optimum(gpus []place.GPU, jobs []Job, rules Rules) float64 {
	s := schedule{
		gpus:    gpus,
		jobs:    jobs,
		rules:   rules,
		best:    math.Inf(1),
		started: make([]bool, len(jobs)),
		packed:  map[string]bool{},
	}
	for _, g := range gpus {
		var n *mig.LayoutInfo
		if g.Model != nil {
			n = g.Model.TableBeside(g.Blocked).Info(g.Busy)
		}
		s.empty = append(s.empty, n)
	}
	s.search(0, math.Inf(-1), 0)
	return s.best
}

type schedule struct {
	gpus    []place.GPU
	empty   []*mig.LayoutInfo
	jobs    []Job
	rules   Rules
	started []bool
	running []run // the started jobs in order of their starts, including jobs that have ended
	best    float64
	packed  map[string]bool
}

// run is a job that has started. Its at field is not used if jobs can migrate.
type run struct {
	job int
	at  place.Spot
	end float64
}

// start is a possible next start: the job, its spot and its time.
type start struct {
	job  int
	at   place.Spot
	from float64
}

// search tries every possible next start. n is the number of jobs that have already started, last is the time of the
// latest start, and sum is the sum of these jobs' waits, in seconds.
func (s *schedule) search(n int, last, sum float64) {
	if n == len(s.jobs) {
		s.best = min(s.best, sum)
		return
	}
	for _, x := range s.starts(n, last) {
		wait := x.from - s.jobs[x.job].Arrival
		s.started[x.job] = true
		if bound := sum + wait + s.certain(x.from); bound < s.best {
			s.running = append(s.running, run{x.job, x.at, x.from + s.jobs[x.job].Duration})
			s.search(n+1, x.from, sum+wait)
			s.running = s.running[:len(s.running)-1]
		}
		s.started[x.job] = false
	}
}

// certain returns a lower bound on the waits of the jobs that have not started, assuming that none of them starts
// before from, which is a time in seconds.
func (s *schedule) certain(from float64) float64 {
	sum := 0.0
	for j, job := range s.jobs {
		if !s.started[j] {
			sum += max(0, from-job.Arrival)
		}
	}
	return sum
}

// starts returns the possible next starts, sorted by time.
func (s *schedule) starts(n int, last float64) []start {
	var all []start
	for j, job := range s.jobs {
		if s.started[j] || s.rules.FIFO && j != n || s.likeAnEarlier(j) {
			continue
		}
		earliest := max(last, job.Arrival)
		if s.rules.Migration {
			if from := s.packable(j, earliest); !math.IsInf(from, 1) {
				all = append(all, start{job: j, from: from})
			}
			continue
		}
		all = append(all, s.placements(j, earliest)...)
	}
	slices.SortStableFunc(all, func(a, b start) int { return cmp.Compare(a.from, b.from) })
	if s.rules.FIFO {
		return all
	}
	// A start is omitted if another job could start and end before it, because starting that job first does not delay
	// anything.
	soonest := math.Inf(1)
	for _, x := range all {
		soonest = min(soonest, x.from+s.jobs[x.job].Duration)
	}
	return slices.DeleteFunc(
		all,
		func(x start) bool { return x.from >= soonest && x.from+s.jobs[x.job].Duration > soonest },
	)
}

// likeAnEarlier reports whether another job that has not started differs from job j only in that it arrived earlier.
// The two jobs are interchangeable, so the search first starts the job that arrived earlier.
func (s *schedule) likeAnEarlier(j int) bool {
	for i, o := range s.jobs {
		if i != j && !s.started[i] && o.Profile == s.jobs[j].Profile && o.Duration == s.jobs[j].Duration &&
			(o.Arrival < s.jobs[j].Arrival || o.Arrival == s.jobs[j].Arrival && i < j) {
			return true
		}
	}
	return false
}

// placements returns the possible placements of a job, each with the time from which it is free. Of several equal GPUs,
// only the first is considered.
func (s *schedule) placements(j int, earliest float64) []start {
	var all []start
	var seen []int
	for k, empty := range s.empty {
		if empty == nil || slices.ContainsFunc(seen, func(o int) bool { return s.alike(k, o, earliest) }) {
			continue
		}
		seen = append(seen, k)
		p, ok := s.gpus[k].Model.ProfileIndex(s.jobs[j].Profile)
		if !ok {
			continue
		}
		for i := range (empty.Open & s.gpus[k].Model.OfProfile(p)).Indices() {
			at := place.Spot{GPU: k, Placement: i}
			all = append(all, start{j, at, s.roomAt(at, earliest)})
		}
	}
	return all
}

// roomAt returns the earliest time at which a spot is free. The result is either earliest or the end of a job that is
// still running at that time.
func (s *schedule) roomAt(at place.Spot, earliest float64) float64 {
	for from := earliest; ; {
		now, next := s.gpus[at.GPU].Busy, math.Inf(1)
		for _, r := range s.running {
			if r.end > from && r.at.GPU == at.GPU {
				now, next = now.With(r.at.Placement), min(next, r.end)
			}
		}
		if s.empty[at.GPU].Table().Info(now).Open.Has(at.Placement) {
			return from
		}
		from = next
	}
}

// alike reports whether two GPUs have the same instances, each of which becomes free at the same time on both.
func (s *schedule) alike(a, b int, now float64) bool {
	if s.empty[a] != s.empty[b] {
		return false
	}
	return slices.Equal(s.busy(a, now), s.busy(b, now))
}

type busyUntil struct {
	placement int
	end       float64
}

func (s *schedule) busy(k int, now float64) []busyUntil {
	var all []busyUntil
	for _, r := range s.running {
		if r.at.GPU == k && r.end > now {
			all = append(all, busyUntil{r.at.Placement, r.end})
		}
	}
	slices.SortFunc(all, func(a, b busyUntil) int { return cmp.Compare(a.placement, b.placement) })
	return all
}

// packable returns the earliest time at which a job fits on the GPUs together with the jobs that are still running at
// that time. The result is +Inf if the job never fits.
func (s *schedule) packable(j int, earliest float64) float64 {
	for from := earliest; ; {
		need, next := []string{s.jobs[j].Profile}, math.Inf(1)
		for _, r := range s.running {
			if r.end > from {
				need, next = append(need, s.jobs[r.job].Profile), min(next, r.end)
			}
		}
		if s.fits(need) {
			return from
		}
		if from = next; math.IsInf(from, 1) {
			return from
		}
	}
}

// fits reports whether, according to Pack, the profiles fit on the GPUs. It calls Pack only once for each set of
// profiles.
func (s *schedule) fits(need []string) bool {
	slices.Sort(need)
	key := ""
	for _, p := range need {
		key += p + " "
	}
	fits, known := s.packed[key]
	if !known {
		_, fits = place.Pack(s.gpus, need)
		s.packed[key] = fits
	}
	return fits
}
