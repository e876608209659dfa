// Package trace reads and makes workloads: lists of jobs that asked for GPU instances. It never plays them; package sim
// does.
//
// A reader that meets what it cannot read says which line of which file and what is wrong with it. What it leaves out
// for a reason that is no mistake (a job without a GPU, one that never ended) it counts, by reason: nothing is dropped
// silently.
package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"caelum/internal/mig"
)

// Job is one of a workload.
type Job struct {
	ID       string
	Submit   float64 // seconds since the workload's beginning
	Duration float64 // how long it runs once it has started, in seconds; with Speed, on a whole GPU
	Limit    float64 // its time limit, in seconds; 0: unknown

	// Profile is the GPU instance that it needs. If empty, it needs these shares of a GPU's compute and memory, from 0
	// to 1, and this much memory.
	Profile         string
	Compute, Memory float64
	MemoryMiB       float64

	// Speed is how fast it runs on each profile, relative to a whole GPU; it cannot run on others. nil: as fast on all.
	Speed map[string]float64
	// Slowest is the least speed that it may be given, from 0 to 1.
	Slowest float64

	Slices int // how many of these it needs, all at once; 0 is 1
	Nodes  int // on how many nodes it has them; 0 is 1

	Waited float64 // how long it really waited, in seconds, where that is known
}

// Spread is on how many nodes the job has its slices, and how many on each: as many nodes as it asks for, more if they
// do not come out even.
func (j Job) Spread() (nodes, each int) {
	n := max(j.Slices, 1)
	nodes = min(max(j.Nodes, 1), n)
	for n%nodes != 0 {
		nodes++
	}
	return nodes, n / nodes
}

// On is the profile that the job needs on a GPU model, false if the GPU model has none for it: the one that is named,
// else the smallest that holds what it needs.
func (j Job) On(b *mig.Model) (string, bool) {
	if j.Profile != "" {
		_, ok := b.ProfileIndex(j.Profile)
		return j.Profile, ok && j.RunsOn(j.Profile)
	}
	var best *mig.Profile
	for k := range b.Profiles {
		p := &b.Profiles[k]
		if float64(p.Compute) < j.Compute*float64(b.Compute())-1e-9 || float64(p.Size) < j.Memory*float64(b.Grid)-1e-9 ||
			p.Memory() < j.MemoryMiB ||
			!j.RunsOn(p.Name) {
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

// RunsOn reports whether the job can run on a profile. Where speeds are given, a profile without one is
// one that the job was not measured on: it may lack the memory, and no speed can be assumed for it.
func (j Job) RunsOn(profile string) bool {
	s := j.SpeedOn(profile)
	return s > 0 && s >= j.Slowest
}

// SpeedOn returns how fast the job runs on a profile, relative to a whole GPU: 1 without speeds, 0 on a
// profile for which no speed is given.
func (j Job) SpeedOn(profile string) float64 {
	if j.Speed == nil {
		return 1
	}
	return j.Speed[profile]
}

// Takes returns how long the job runs on a profile that it can run on, in seconds.
func (j Job) Takes(profile string) float64 { return j.Duration / j.SpeedOn(profile) }

// Workload is what a reader made of a file.
type Workload struct {
	Jobs []Job // in the order of submission
	Left []Left
	// Assumed is how many jobs are taken to need whole GPUs because nobody measured what they need, Several how many
	// because what was measured is the sum over several GPUs.
	Assumed, Several int
}

// Left says how many of a file's jobs were left out for one reason.
type Left struct {
	Reason string `json:"reason"`
	Jobs   int    `json:"jobs"`
}

// Only leaves out the jobs that these nodes could never run; of a node only its GPUs' GPU models are asked for. If
// anywhere, nobody asks which node a GPU is in, and there is one of all.
func (w *Workload) Only(nodes [][]*mig.Model, anywhere bool) {
	kinds := kindsOf(nodes)
	kept := w.Jobs[:0:0]
	for _, j := range w.Jobs {
		if why := j.impossible(kinds, anywhere); why != "" {
			w.leave(why, 1)
		} else {
			kept = append(kept, j)
		}
	}
	w.Jobs = kept
}

// kind is nodes that are alike: how many GPUs of each GPU model one has.
type kind struct {
	boards map[*mig.Model]int
	nodes  int
}

func kindsOf(nodes [][]*mig.Model) (kinds []kind) {
	for _, gpus := range nodes {
		boards := map[*mig.Model]int{}
		for _, b := range gpus {
			boards[b]++
		}
		k := slices.IndexFunc(kinds, func(k kind) bool { return maps.Equal(k.boards, boards) })
		if k < 0 {
			k, kinds = len(kinds), append(kinds, kind{boards: boards})
		}
		kinds[k].nodes++
	}
	return kinds
}

// impossible says why the job can never run on nodes of these kinds, or nothing.
func (j Job) impossible(kinds []kind, anywhere bool) string {
	spread, each := 1, max(j.Slices, 1)
	if !anywhere {
		spread, each = j.Spread()
	}
	any, enough := false, 0
	for _, k := range kinds {
		room := 0
		for b, gpus := range k.boards {
			if name, ok := j.On(b); ok {
				p, _ := b.ProfileIndex(name)
				room += gpus * b.Table().Node(0).Placeable(p)
			}
		}
		any = any || room > 0
		if room >= each {
			enough += k.nodes
		}
	}
	switch {
	case !any:
		return "no GPU here has what it needs"
	case enough < spread:
		return "it needs more GPUs than are here"
	}
	return ""
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
