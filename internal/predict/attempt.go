package predict

import (
	"math"
	"slices"
	"strings"

	"caelum/internal/mig"
)

const (
	// nearlyFull is the share of the memory in its profile's name from which a run that failed counts as killed for
	// memory. The share is not closer to 1 because the allocation that fails does not show in the samples, and because
	// instances have 89 to 99% of the memory in their names (models.txt of internal/mig).
	nearlyFull = 0.75
	// usable is the share of the memory in its profile's name that most instances have.
	usable = 0.95
	// steady is the share of its peak that the median memory of a run must reach. The run had then reached its peak
	// long before it ended.
	steady = 0.9
	// asFar is the share of the lowest peak of complete runs from which a run counts as having come as far as these.
	asFar = 0.5
	// sameLimit is the run time from which a run counts as having reached the time limit again, as a share of the
	// longest run that reached it before.
	sameLimit = 0.9
)

// attempt is a run of a job, with the values of the node that used most.
type attempt struct {
	Run
	complete bool // the run shows how much memory is enough
	short    bool // the run was killed for memory
	doubtful bool // the run failed, perhaps for memory: the samples do not show an allocation that fails immediately
}

// attempts returns the runs that were sampled, and those that failed before the first sample, oldest first.
func attempts(runs []Run) []attempt {
	all := together(runs)
	cut := 0.0              // the longest run so far that reached its time limit, in seconds
	least := math.Inf(1)    // the smallest slice on which a run was complete, in MiB
	usual := math.Inf(1)    // the lowest peak of a complete run, in MiB
	complete, inRow := 0, 0 // how many runs were complete, and how many have failed since the last of them
	for k := range all {
		a := &all[k]
		switch state, _, _ := strings.Cut(a.State, " "); state { // "CANCELLED by 1001"
		case "COMPLETED":
			a.complete = true
		case "TIMEOUT":
			a.complete = a.MedianMiB >= steady*a.PeakMiB || cut > 0 && a.Seconds >= sameLimit*cut
			cut = max(cut, a.Seconds)
		case "FAILED":
			a.short = a.OutOfMemory()
			if a.whole() || a.Exit == notExecutable || a.Exit == notFound {
				break
			}
			if inRow++; !a.short {
				early := a.PeakMiB < asFar*usual // the run had not come as far as the complete ones
				a.doubtful = inRow > 2 || early && (inRow > 1 || complete < 2 && a.promised() < least)
			}
		}
		if a.complete {
			complete, inRow, usual = complete+1, 0, min(usual, a.PeakMiB)
			if a.promised() > 0 {
				least = min(least, a.promised())
			}
		}
	}
	return all
}

// The exit statuses of a shell that could not run the command: sh(1).
const notExecutable, notFound = 126, 127

// OutOfMemory reports whether a run counts as killed for memory of the GPU. An out-of-memory error of CUDA ends a job
// as FAILED. The state OUT_OF_MEMORY of Slurm is about the memory of the host.
func (r Run) OutOfMemory() bool {
	return r.State == "FAILED" && r.promised() > 0 && r.PeakMiB >= nearlyFull*r.promised()
}

// since returns the attempts from the n-th last complete one on.
func since(all []attempt, n int) []attempt {
	first := len(all)
	for first > 0 && n > 0 {
		if first--; all[first].complete {
			n--
		}
	}
	return all[first:]
}

// proved reports whether a run was certainly killed for memory: the next complete run used more memory than the slice
// of the killed one had.
func proved(all []attempt) bool {
	less := 0.0
	for _, a := range all {
		switch {
		case a.short:
			less = max(less, a.promised())
		case a.complete && less > 0 && a.PeakMiB > usable*less:
			return true
		case a.complete:
			less = 0
		}
	}
	return false
}

// together joins the runs of a job on several nodes into one, with the largest values of all nodes.
func together(runs []Run) (all []attempt) {
	type id struct {
		job     uint32
		restart int
	}
	at := map[id]int{}
	for _, r := range runs {
		if r.Samples == 0 && r.State != "FAILED" { // a run that failed may have been too short for a sample
			continue
		}
		k, known := at[id{r.Job, r.Restart}]
		if !known || r.Job == 0 {
			at[id{r.Job, r.Restart}] = len(all)
			all = append(all, attempt{Run: r})
			continue
		}
		a := &all[k]
		a.PeakMiB, a.MedianMiB = max(a.PeakMiB, r.PeakMiB), max(a.MedianMiB, r.MedianMiB)
		a.Seconds, a.Util = max(a.Seconds, r.Seconds), max(a.Util, r.Util)
	}
	return all
}

// promised returns the memory in the name of a run's profile, in MiB. No instance has more.
func (r Run) promised() float64 {
	_, gb := mig.Claims(r.Profile)
	return 1024 * gb
}

// whole reports whether a run had a whole GPU.
func (r Run) whole() bool {
	return slices.ContainsFunc(mig.Models(), func(b *mig.Model) bool {
		k, ok := b.ProfileIndex(r.Profile)
		return ok && b.Type == r.Board && b.Profiles[k].Compute == b.Compute()
	})
}

// slices returns the compute slices of a run, according to its profile's name; 0: unknown.
func (r Run) slices() float64 {
	compute, _ := mig.Claims(r.Profile)
	return float64(compute)
}
