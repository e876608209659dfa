// Package trace reads and makes workloads: lists of jobs that asked for GPU instances. It never plays them; package sim does.
//
// A reader that meets what it cannot read says which line of which file and what is wrong with it. What it leaves out for a reason that
// is no mistake (a job without a GPU, one that never ended) it counts, by reason: nothing is dropped silently.
package trace

import (
	"cmp"
	"fmt"
	"slices"

	"caelum/internal/mig"
)

// Job is one of a workload.
type Job struct {
	ID       string
	Submit   float64 // seconds since the workload's beginning
	Duration float64 // how long it runs once it has started, in seconds; with Speed, on a whole GPU
	Limit    float64 // its time limit, in seconds; 0: unknown

	// Profile is the GPU instance that it needs. If empty, it needs these shares of a GPU's compute and memory, from 0 to 1, and this
	// much memory.
	Profile         string
	Compute, Memory float64
	MemoryMiB       float64

	// Speed is how fast it runs on each profile, relative to a whole GPU; it cannot run on others. nil: as fast on all.
	Speed map[string]float64
	// Slowest is the least speed that it may be given, from 0 to 1.
	Slowest float64

	Slices int // how many of these it needs, all at once; 0 is 1

	Waited float64 // how long it really waited, in seconds, where that is known
}

// On is the profile that the job needs on a board, false if the board has none for it: the one that is named, else the smallest that
// holds what it needs.
func (j Job) On(b *mig.Board) (string, bool) {
	if j.Profile != "" {
		_, ok := b.ProfileIndex(j.Profile)
		return j.Profile, ok
	}
	whole := slices.IndexFunc(b.Profiles, func(p mig.Profile) bool { return p.Size == b.Grid })
	if whole < 0 {
		return "", false
	}
	var best *mig.Profile
	for k := range b.Profiles {
		p := &b.Profiles[k]
		if float64(p.Compute) < j.Compute*float64(b.Profiles[whole].Compute)-1e-9 || float64(p.Size) < j.Memory*float64(b.Grid)-1e-9 ||
			float64(p.MemoryMiB) < j.MemoryMiB || !j.runs(p.Name) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(p.Size, best.Size), cmp.Compare(p.Compute, best.Compute)) < 0 {
			best = p
		}
	}
	if best == nil {
		return "", false
	}
	return best.Name, true
}

func (j Job) runs(profile string) bool {
	return j.Speed == nil || j.Speed[profile] > 0 && j.Speed[profile] >= j.Slowest
}

// Takes is how long the job runs on a profile, in seconds.
func (j Job) Takes(profile string) float64 {
	if s := j.Speed[profile]; s > 0 {
		return j.Duration / s
	}
	return j.Duration
}

// Workload is what a reader made of a file.
type Workload struct {
	Jobs []Job // in the order of submission
	Left []Left
	// Assumed is how many jobs are taken to need a whole GPU because nobody measured what they need.
	Assumed int
}

// Left says how many of a file's jobs were left out for one reason.
type Left struct {
	Reason string `json:"reason"`
	Jobs   int    `json:"jobs"`
}

// Only leaves out the jobs that no GPU of these could ever run.
func (w *Workload) Only(gpus []*mig.Board) {
	count := map[*mig.Board]int{}
	for _, b := range gpus {
		count[b]++
	}
	// room is how many slices for the job there can be at once.
	room := func(j Job) (n int) {
		for b, gpus := range count {
			if name, ok := j.On(b); ok {
				p, _ := b.ProfileIndex(name)
				n += gpus * b.Table().Node(0).Placeable(p)
			}
		}
		return n
	}
	kept := w.Jobs[:0:0]
	for _, j := range w.Jobs {
		switch n := room(j); {
		case n == 0:
			w.leave("no GPU here has what it needs", 1)
		case n < j.Slices:
			w.leave("it needs more GPUs than are here", 1)
		default:
			kept = append(kept, j)
		}
	}
	w.Jobs = kept
}

func (w *Workload) leave(reason string, jobs int) {
	if jobs == 0 {
		return
	}
	for k := range w.Left {
		if w.Left[k].Reason == reason {
			w.Left[k].Jobs += jobs
			return
		}
	}
	w.Left = append(w.Left, Left{reason, jobs})
}

// settle sorts the jobs by submission, those at the same time in the file's order, and lets time begin with the first.
func (w *Workload) settle() {
	slices.SortStableFunc(w.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	if len(w.Jobs) == 0 {
		return
	}
	begin := w.Jobs[0].Submit
	for k := range w.Jobs {
		w.Jobs[k].Submit -= begin
	}
}

// LineError is a line that cannot be read.
type LineError struct {
	File string
	Line int // the first is 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap gives what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }
