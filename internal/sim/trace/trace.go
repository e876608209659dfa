package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"caelum/internal/core/mig"
)

// Job is one job of a workload.
type Job struct {
	ID       string
	Submit   float64 // seconds since the beginning of the workload
	Duration float64 // run time in seconds; if Speed is set, the run time on a whole GPU
	Limit    float64 // the time limit in seconds, or 0 if unknown

	// Profile is the profile of the GPU instance that the job needs. If it is empty, the job needs MemoryMiB and the
	// fractions Compute and Memory of a GPU, from 0 to 1.
	Profile         string
	Compute, Memory float64
	MemoryMiB       float64

	// Speed is the job's speed on each profile, relative to a whole GPU. The job cannot run on profiles without an
	// entry. If Speed is nil, the job is equally fast on all profiles.
	Speed map[string]float64
	// Slowest is the lowest acceptable speed, from 0 to 1.
	Slowest float64

	Slices int // the number of slices that the job needs at the same time; 0 means 1
	Nodes  int // the number of nodes over which the slices are distributed; 0 means 1

	Waited float64 // the actual waiting time in seconds, or 0 if unknown
}

// Spread returns the number of nodes for the job's slices, and the number of slices per node. The number of nodes is
// the requested number, or the next larger number that divides the number of slices evenly.
func (j Job) Spread() (nodes, each int) {
	n := max(j.Slices, 1)
	nodes = min(max(j.Nodes, 1), n)
	for n%nodes != 0 {
		nodes++
	}
	return nodes, n / nodes
}

// On returns the profile that the job needs on a GPU model: its Profile or, if that is empty, the smallest profile that
// satisfies its requirements. On a GPU that supports MIG, it returns mig.Full only for a job whose Profile is mig.Full.
// On other GPUs, a profile of MIG stands for its memory. The second result is false if the GPU model has no suitable
// profile.
func (j Job) On(b *mig.Model) (string, bool) {
	if _, ok := b.ProfileIndex(j.Profile); ok {
		return j.Profile, j.RunsOn(j.Profile)
	}
	if j.Profile != "" {
		if _, gb := mig.Claims(j.Profile); gb == 0 || !b.WithoutMIG() {
			return "", false
		}
		j.MemoryMiB = mig.Profile{Name: j.Profile}.Memory()
	}
	var best *mig.Profile
	for k := range b.Profiles {
		p := &b.Profiles[k]
		if p.Name == mig.Full && !b.WithoutMIG() ||
			float64(p.Compute) < j.Compute*float64(b.Compute())-1e-9 ||
			float64(p.Size) < j.Memory*float64(b.Grid)-1e-9 ||
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

// RunsOn reports whether the job can run on a profile. It returns false if Speed is set but has no entry for the
// profile: the job's speed on it was not measured, perhaps because the profile has too little memory.
func (j Job) RunsOn(profile string) bool {
	s := j.SpeedOn(profile)
	return s > 0 && s >= j.Slowest
}

// SpeedOn returns the job's speed on a profile, relative to a whole GPU: 1 if Speed is nil, and 0 if it has no entry
// for the profile. It is also 1 on a full GPU and on a fraction, as if the job were alone on the GPU.
func (j Job) SpeedOn(profile string) float64 {
	if j.Speed == nil || profile == mig.Full || mig.IsFraction(profile) {
		return 1
	}
	return j.Speed[profile]
}

// Takes returns the run time on a profile, in seconds. The job must be able to run on the profile.
func (j Job) Takes(profile string) float64 { return j.Duration / j.SpeedOn(profile) }

// Workload is the result of a reader.
type Workload struct {
	Jobs []Job // sorted by submission time
	Left []Left
	// Assumed is the number of jobs that are assumed to need whole GPUs because their usage was not measured. Several
	// is the number of multi-GPU jobs whose usage is known only as a total.
	Assumed, Several int
}

// Left is a reason for leaving out jobs, and the number of jobs in a file that were left out for this reason.
type Left struct {
	Reason string `json:"reason"`
	Jobs   int    `json:"jobs"`
}

// Only removes the jobs that can never run on the given nodes. nodes lists the GPU models of each node. If anywhere is
// true, a job may use GPUs on any node, and nodes contains a single node with all GPUs.
func (w *Workload) Only(nodes [][]*mig.Model, anywhere bool) {
	kinds := kindsOf(nodes)
	kept := w.Jobs[:0:0]
	for _, j := range w.Jobs {
		if why := j.impossible(kinds, anywhere); why != "" {
			w.Leave(why, 1)
		} else {
			kept = append(kept, j)
		}
	}
	w.Jobs = kept
}

// kind describes a set of identical nodes.
type kind struct {
	models map[*mig.Model]int // number of GPUs of each model on one node
	nodes  int
}

func kindsOf(nodes [][]*mig.Model) (kinds []kind) {
	for _, gpus := range nodes {
		models := map[*mig.Model]int{}
		for _, b := range gpus {
			models[b]++
		}
		k := slices.IndexFunc(kinds, func(k kind) bool { return maps.Equal(k.models, models) })
		if k < 0 {
			k, kinds = len(kinds), append(kinds, kind{models: models})
		}
		kinds[k].nodes++
	}
	return kinds
}

// impossible returns the reason why the job can never run on nodes of the given kinds, or an empty string if the job
// can run.
func (j Job) impossible(kinds []kind, anywhere bool) string {
	spread, each := 1, max(j.Slices, 1)
	if !anywhere {
		spread, each = j.Spread()
	}
	any, enough := false, 0
	for _, k := range kinds {
		room := 0
		for b, gpus := range k.models {
			if name, ok := j.On(b); ok {
				p, _ := b.ProfileIndex(name)
				room += gpus * b.Table().Info(0).Placeable(p)
			}
		}
		any = any || room > 0
		if room >= each {
			enough += k.nodes
		}
	}
	switch {
	case !any:
		return "no GPU has a suitable profile"
	case enough < spread:
		return "the job needs more GPUs than the cluster has"
	}
	return ""
}

// Leave counts jobs that are left out for a reason.
func (w *Workload) Leave(reason string, jobs int) {
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

// Settle sorts the jobs by submission time and shifts all times so that the first submission is at time 0. Jobs with
// equal submission times keep their order in the file.
func (w *Workload) Settle() {
	slices.SortStableFunc(w.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	if len(w.Jobs) == 0 {
		return
	}
	begin := w.Jobs[0].Submit
	for k := range w.Jobs {
		w.Jobs[k].Submit -= begin
	}
}

// LineError is the error for a line that cannot be parsed.
type LineError struct {
	File string
	Line int // the first line is 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }
