package predict

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"caelum/internal/core/mig"
)

const (
	// nearlyFull is a fraction of the memory in a profile's name. A failed run that used at least this fraction is
	// assumed to have run out of memory. It is well below 1 because samples do not include the allocation that failed,
	// and because an instance's actual memory is only 89 to 99% of the memory in its profile's name (models.txt in
	// internal/core/mig).
	nearlyFull = 0.75
	// usable is the fraction of the memory in its profile's name that nearly every instance actually provides.
	usable = 0.95
	// steady is a ratio of a run's median memory to its peak memory. A run with at least this ratio is assumed to have
	// reached its peak long before the end.
	steady = 0.9
	// asFar is a fraction of the lowest peak of all complete runs. A failed run whose peak is at least this fraction is
	// assumed to have progressed as far as the complete runs.
	asFar = 0.5
	// sameLimit is a fraction of the duration of the longest run that reached its time limit. A later run that ended at
	// its time limit is complete if it lasted at least this fraction.
	sameLimit = 0.9
)

// attempt is a run of a job. For a job on several nodes, each field is the maximum over the nodes.
type attempt struct {
	Run
	complete bool // the run shows how much memory is sufficient for the job
	short    bool // the run probably ran out of memory
	doubtful bool // the run failed, perhaps because it ran out of memory, even though its peak was low
	early    bool // the run failed long before the complete runs ended, and used little memory
}

// attempts returns, oldest first, the runs that were sampled and the runs that failed before the first sample.
func attempts(runs []Run) []attempt {
	all := together(runs)
	cut := 0.0 // the duration in seconds of the longest earlier run that reached its time limit
	var failures failures
	for k := range all {
		a := &all[k]
		if a.End != "" { // Slurm's state may be REQUEUED, FAILED or CANCELLED
			failures.failed(a)
			continue
		}
		switch state, _, _ := strings.Cut(a.State, " "); state { // a state can be, for example, "CANCELLED by 1001"
		case "COMPLETED":
			a.complete = true
		case "TIMEOUT":
			a.complete = a.MedianMiB >= steady*a.PeakMiB || cut > 0 && a.Seconds >= sameLimit*cut
			cut = max(cut, a.Seconds)
		case "FAILED":
			failures.failed(a)
		}
		if a.complete {
			failures.completed(a)
		}
	}
	return all
}

// notExecutable and notFound are the exit statuses of a shell that cannot run a command; see sh(1).
const notExecutable, notFound = 126, 127

// OutOfMemory reports whether a run certainly or probably ran out of GPU memory. Slurm puts a job that ends with a CUDA
// out-of-memory error into the FAILED state. Slurm's OUT_OF_MEMORY state refers to the host's memory.
func (r Run) OutOfMemory() bool {
	return r.End != "" || r.State == "FAILED" && r.promised() > 0 && r.PeakMiB >= nearlyFull*r.promised()
}

// since returns the n-th complete attempt from the end, and all attempts after it.
func since(all []attempt, n int) []attempt {
	first := len(all)
	for first > 0 && n > 0 {
		if first--; all[first].complete {
			n--
		}
	}
	return all[first:]
}

// proved reports whether a run certainly ran out of memory, because the next complete run used more memory than the
// failed run's slice had.
func proved(all []attempt) bool {
	less := 0.0
	for _, a := range all {
		switch {
		case a.OutOfMemory() || a.short:
			less = max(less, a.promised())
		case a.complete && less > 0 && a.PeakMiB > usable*less:
			return true
		case a.complete:
			less = 0
		}
	}
	return false
}

// together merges one run's records on several nodes into one attempt. Each field is the maximum over the nodes.
func together(runs []Run) (all []attempt) {
	type id struct {
		job     uint32
		restart int
	}
	at := map[id]int{}
	for _, r := range runs {
		if r.Samples == 0 && r.State != "FAILED" && r.End == "" { // a failed run may have been too short for a sample
			continue
		}
		k, known := at[id{r.Job, r.Restart}]
		if !known || r.Job == 0 {
			at[id{r.Job, r.Restart}] = len(all)
			all = append(all, attempt{Run: r})
			continue
		}
		a := &all[k]
		a.End, a.ForeseenMiB = cmp.Or(a.End, r.End), max(a.ForeseenMiB, r.ForeseenMiB)
		a.PeakMiB, a.MedianMiB = max(a.PeakMiB, r.PeakMiB), max(a.MedianMiB, r.MedianMiB)
		a.Seconds, a.Util = max(a.Seconds, r.Seconds), max(a.Util, r.Util)
	}
	return all
}

// promised returns the memory in the name of a run's profile, in MiB. A MIG instance has at most this memory, and a
// fraction at least this memory. For a whole GPU (mig.Full), the result is infinite, because no slice has more.
func (r Run) promised() float64 {
	if r.Profile == mig.Full {
		return math.Inf(1)
	}
	_, gb := mig.Claims(r.Profile)
	return 1024 * max(gb, float64(mig.FractionGB(r.Profile)))
}

// most returns an upper bound, in MiB, on the memory of an instance of a run's profile. The names of fractions are
// rounded down.
func (r Run) most() float64 {
	if mig.IsFraction(r.Profile) {
		return r.promised() + 1023
	}
	return r.promised()
}

// whole reports whether a run used a whole GPU.
func (r Run) whole() bool {
	return r.Profile == mig.Full || slices.ContainsFunc(mig.Models(), func(b *mig.Model) bool {
		k, ok := b.ProfileIndex(r.Profile)
		return ok && b.Type == r.GPUType && b.Profiles[k].Compute == b.Compute()
	})
}

// compute returns the number of compute slices in the name of a run's profile, or 0 if unknown. It is unknown for a
// fraction, because its share depends on the other jobs on the GPU.
func (r Run) compute() int {
	compute, _ := mig.Claims(r.Profile)
	return compute
}
