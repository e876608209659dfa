package place

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
)

// Job is one of a case for [Optimum]: an instance of a profile for a time.
type Job struct {
	Profile  string
	Arrival  float64 // seconds
	Duration float64 // seconds
}

// Rules say what a schedule may do.
type Rules struct {
	// FIFO: jobs start in the order in which they are given (the queue's), which must be that of their arrival.
	// Otherwise in any.
	FIFO bool
	// Migration: instances may be moved at any time for nothing, so that at every moment only packability counts: the
	// reference that no placement can beat.
	Migration bool
}

// Optimum is the least total wait, in seconds, of any schedule of these jobs on these GPUs that knows everything in
// advance; +Inf when one of them fits on no GPU. What is busy on the GPUs stays for good; idle instances do not matter.
// Nothing is stopped. The search is exact, for cases of some ten jobs in FIFO order and some seven in any order.
//
// It goes through the orders of starts and, without migration, the placements of each job. Once those are given, every
// job starts as soon as it can: an earlier start ends earlier, and takes no room from those that start later. Waits
// that are certain bound a branch: nobody starts before those that have.
func Optimum(gpus []GPU, jobs []Job, rules Rules) float64 {
	s := schedule{
		gpus:    gpus,
		jobs:    jobs,
		rules:   rules,
		best:    math.Inf(1),
		started: make([]bool, len(jobs)),
		packed:  map[string]bool{},
	}
	for _, g := range gpus {
		var n *mig.Node
		if g.Model != nil {
			n = g.Model.TableBeside(g.Blocked).Node(g.Layout)
		}
		s.empty = append(s.empty, n)
	}
	s.search(0, math.Inf(-1), 0)
	return s.best
}

type schedule struct {
	gpus    []GPU
	empty   []*mig.Node
	jobs    []Job
	rules   Rules
	started []bool
	running []run // in the order of their starts; some have ended
	best    float64
	packed  map[string]bool
}

// run is a job that has started. With migration it has no spot.
type run struct {
	job int
	at  Spot
	end float64
}

// start is a way for a job to be the next that starts.
type start struct {
	job  int
	at   Spot
	from float64
}

// search starts the next job in every way. n have started, the last of them at the time last; they waited for sum.
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

// certain is what those that have not started will wait at least, when nobody starts before this time any more.
func (s *schedule) certain(from float64) float64 {
	sum := 0.0
	for j, job := range s.jobs {
		if !s.started[j] {
			sum += max(0, from-job.Arrival)
		}
	}
	return sum
}

// starts are the ways for the next start, soonest first.
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
	// Who starts when another, who could have started, would have ended by then, loses nothing if that one does start.
	soonest := math.Inf(1)
	for _, x := range all {
		soonest = min(soonest, x.from+s.jobs[x.job].Duration)
	}
	return slices.DeleteFunc(
		all,
		func(x start) bool { return x.from >= soonest && x.from+s.jobs[x.job].Duration > soonest },
	)
}

// likeAnEarlier: of jobs that differ in their arrival only, the one that came first starts first; else they could
// change places.
func (s *schedule) likeAnEarlier(j int) bool {
	for i, o := range s.jobs {
		if i != j && !s.started[i] && o.Profile == s.jobs[j].Profile && o.Duration == s.jobs[j].Duration &&
			(o.Arrival < s.jobs[j].Arrival || o.Arrival == s.jobs[j].Arrival && i < j) {
			return true
		}
	}
	return false
}

// placements are all those of a job, each from when it can be had. Of GPUs that are alike, with everything on them, one
// is enough.
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
			all = append(all, start{j, Spot{k, i}, s.roomAt(Spot{k, i}, earliest)})
		}
	}
	return all
}

// roomAt is when a spot can be had: at the earliest time, or when one of those that run then has ended.
func (s *schedule) roomAt(at Spot, earliest float64) float64 {
	for from := earliest; ; {
		now, next := s.gpus[at.GPU].Layout, math.Inf(1)
		for _, r := range s.running {
			if r.end > from && r.at.GPU == at.GPU {
				now, next = now.With(r.at.Placement), min(next, r.end)
			}
		}
		if s.empty[at.GPU].Table().Node(now).Open.Has(at.Placement) {
			return from
		}
		from = next
	}
}

// alike reports whether the same stands on two GPUs until the same times.
func (s *schedule) alike(a, b int, now float64) bool {
	if s.empty[a] != s.empty[b] {
		return false
	}
	return slices.Equal(s.standing(a, now), s.standing(b, now))
}

type standingUntil struct {
	placement int
	end       float64
}

func (s *schedule) standing(k int, now float64) []standingUntil {
	var all []standingUntil
	for _, r := range s.running {
		if r.at.GPU == k && r.end > now {
			all = append(all, standingUntil{r.at.Placement, r.end})
		}
	}
	slices.SortFunc(all, func(a, b standingUntil) int { return cmp.Compare(a.placement, b.placement) })
	return all
}

// packable is when a job and all that run then can stand on the GPUs together; +Inf: never.
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

// fits is Pack, asked once for each set of profiles.
func (s *schedule) fits(need []string) bool {
	slices.Sort(need)
	key := ""
	for _, p := range need {
		key += p + " "
	}
	fits, known := s.packed[key]
	if !known {
		_, fits = Pack(s.gpus, need)
		s.packed[key] = fits
	}
	return fits
}
