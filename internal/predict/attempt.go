package predict

import (
	"strings"

	"caelum/internal/mig"
)

const (
	// near is how full a slice was when a run that failed is taken to have been killed for memory, as a share of what its profile's name promises. The
	// allocation that fails is not seen, and instances have 89 to 99% of what their names say (boards.txt of internal/mig).
	near = 0.75
	// full is what most instances have of what their names promise.
	full = 0.95
	// still is the share of its peak that a run's memory had at least half of the time, if it had reached its peak long before it ended.
	still = 0.9
	// again is how long a run was that ran into its time limit once more, compared with the longest that had before.
	again = 0.9
)

// attempt is a run of a job, on whichever of its nodes most was used.
type attempt struct {
	Run
	complete bool // it shows how much is enough
	short    bool // it was killed for memory
}

// attempts are the runs that were looked at, oldest first.
func attempts(runs []Run) []attempt {
	all := together(runs)
	cut := 0.0 // seconds of the longest run so far that ran into its time limit
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
		}
	}
	return all
}

// OutOfMemory reports whether a run is taken to have been killed for memory: CUDA's out-of-memory ends a job as FAILED, and Slurm's OUT_OF_MEMORY is the host's.
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
		if r.Samples == 0 {
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

// slices are the compute slices that a run had, by its profile's name; 0: it does not say.
func (r Run) slices() float64 {
	compute, _ := mig.Claims(r.Profile)
	return float64(compute)
}
