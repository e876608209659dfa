package predict

import (
	"math"
	"slices"
	"strings"

	"caelum/internal/mig"
)

const (
	// near is how full a slice was when a run that failed is taken to have been killed for memory, as a share of what
	// its profile's name promises. The allocation that fails is not seen, and instances have 89 to 99% of what their
	// names say (models.txt of internal/mig).
	near = 0.75
	// full is what most instances have of what their names promise.
	full = 0.95
	// still is the share of its peak that a run's memory had at least half of the time, if it had reached its peak long
	// before it ended.
	still = 0.9
	// half is the share of the lowest peak of complete runs that a run has reached which came as far as they.
	half = 0.5
	// again is how long a run was that ran into its time limit once more, compared with the longest that had before.
	again = 0.9
)

// attempt is a run of a job, on whichever of its nodes most was used.
type attempt struct {
	Run
	complete bool // it shows how much is enough
	short    bool // it was killed for memory
	doubtful bool // it failed, and may have been: an allocation that fails at once leaves no trace in what was in use
}

// attempts are the runs that were looked at, and those that failed before, oldest first.
func attempts(runs []Run) []attempt {
	all := together(runs)
	cut := 0.0              // seconds of the longest run so far that ran into its time limit
	least := math.Inf(1)    // the smallest slice on which a run was complete
	usual := math.Inf(1)    // the lowest peak of a complete run
	complete, inRow := 0, 0 // how many were, and how many have failed since
	for k := range all {
		a := &all[k]
		switch state, _, _ := strings.Cut(a.State, " "); state { // "CANCELLED by 1001"
		case "COMPLETED":
			a.complete = true
		case "TIMEOUT":
			a.complete = a.MedianMiB >= still*a.PeakMiB || cut > 0 && a.Seconds >= again*cut
			cut = max(cut, a.Seconds)
		case "FAILED":
			a.short = a.OutOfMemory()
			if a.whole() || a.Exit == notExecutable || a.Exit == notFound {
				break
			}
			if inRow++; !a.short {
				early := a.PeakMiB < half*usual // it had not come as far as those that were complete
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

// Exit statuses of a shell that could not run the command: sh(1).
const notExecutable, notFound = 126, 127

// OutOfMemory reports whether a run is taken to have been killed for memory: CUDA's out-of-memory ends a job as FAILED,
// and Slurm's OUT_OF_MEMORY is the host's.
func (r Run) OutOfMemory() bool {
	return r.State == "FAILED" && r.promised() > 0 && r.PeakMiB >= near*r.promised()
}

// since is the attempts from the first of the last so many complete ones on.
func since(all []attempt, complete int) []attempt {
	first := len(all)
	for first > 0 && complete > 0 {
		if first--; all[first].complete {
			complete--
		}
	}
	return all[first:]
}

// proved reports whether a run was killed for memory for sure: the next complete one used what its slice did not have.
func proved(all []attempt) bool {
	less := 0.0
	for _, a := range all {
		switch {
		case a.short:
			less = max(less, a.promised())
		case a.complete && less > 0 && a.PeakMiB > full*less:
			return true
		case a.complete:
			less = 0
		}
	}
	return false
}

// together makes one of the runs of a job on several nodes.
func together(runs []Run) (all []attempt) {
	type id struct {
		job     uint32
		restart int
	}
	at := map[id]int{}
	for _, r := range runs {
		if r.Samples == 0 && r.State != "FAILED" { // one that failed may have been too short to be looked at
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

// promised is what the name of a run's profile says, in MiB: no instance has more.
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

// slices are the compute slices that a run had, by its profile's name; 0: it does not say.
func (r Run) slices() float64 {
	compute, _ := mig.Claims(r.Profile)
	return float64(compute)
}
