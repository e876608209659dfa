package predict

import "math"

// A failed run has two possible explanations: the slice had too little memory, or the run failed for another reason.
// The latter is likely for a job that often fails. chance is the fraction of the job's runs that fail for other
// reasons, so the probability that this happens n times in a row is chance^n. If this probability is below a threshold,
// the run is assumed to have run out of memory.
const (
	// likely is the threshold for a failed run that used nearly all of its slice's memory. It also applies to a job's
	// first failure after its only complete run if the failed run's slice is smaller than the complete run's.
	likely = 0.1
	// unlikely is the threshold for all other failed runs. A job without earlier failures falls below the threshold
	// with its third failure in a row, or with its second in a row after nine complete runs.
	unlikely = 1e-4
	// priorFailures and priorTrials describe the fraction of failed runs that is assumed before any runs exist:
	// priorFailures out of priorTrials runs. All constants were chosen with seed 1 of `go run -C contrib/lab ./learn
	// variants`.
	priorFailures = 0.1
	priorTrials   = 2
	// unusual is the ratio of a failed run's peak to the peak of the last complete run above which the failed run
	// certainly needed more memory than the complete run.
	unusual = 1.05
)

// failures determines whether each failed run ran out of memory. The zero value has not seen any runs.
type failures struct {
	complete, other int     // the numbers of complete runs and of runs that failed for reasons other than memory
	least           float64 // the memory of the smallest slice on which a run was complete, in MiB; 0 if unknown
	usual, last     float64 // the lowest peak of all complete runs and the peak of the last complete run, in MiB

	open  []*attempt // the failed runs after the last complete run
	inRow int        // the number of failed runs after the last complete run and after the last larger slice
	on    float64    // the memory of the last failed run's slice, in MiB
}

// failed sets a failed run's short and doubtful fields.
func (f *failures) failed(a *attempt) {
	full := a.OutOfMemory()
	switch {
	case a.End != "": // the agent knows the reason
		a.short = true
		f.open = append(f.open, a)
		return
	case a.Exit == notExecutable || a.Exit == notFound: // the program did not start
		a.short = full
		return
	case a.whole(): // no larger slice exists
		if a.short = full; !full {
			f.other++
		}
		return
	case f.complete == 0: // the need is unknown, so the slice grows until a run is complete
		a.short, a.doubtful = full, !full
		f.open = append(f.open, a)
		return
	}
	memory := a.promised()
	if memory > f.on {
		f.inRow = 0 // the failures on smaller slices do not show that this slice is too small
	}
	f.open, f.on, f.inRow = append(f.open, a), memory, f.inRow+1
	chance := (priorFailures + float64(f.other)) / (priorTrials + float64(f.other+f.complete))
	if full {
		a.short = a.PeakMiB > unusual*f.last || math.Pow(chance, float64(f.inRow)) < likely
		return
	}
	n := f.inRow
	if a.PeakMiB < asFar*f.usual { // the run did not progress as far as the complete runs
		n++
		a.doubtful = f.complete < 2 && len(f.open) == 1 && memory < f.least && chance < likely
	}
	a.doubtful = a.doubtful || math.Pow(chance, float64(n)) < unlikely
}

// completed records a complete run. The failed runs since the last complete run did not fail for lack of memory if
// their slices were at least as large as this run's, or if they were not assumed to have run out of memory at the time.
func (f *failures) completed(a *attempt) {
	memory := a.promised()
	for _, o := range f.open {
		if o.promised() >= memory || !o.short && !o.doubtful {
			f.other++
		}
	}
	if memory > 0 && (f.least == 0 || memory < f.least) {
		f.least = memory
	}
	if f.complete == 0 || a.PeakMiB < f.usual {
		f.usual = a.PeakMiB
	}
	f.complete, f.last = f.complete+1, a.PeakMiB
	f.open, f.inRow, f.on = nil, 0, 0
}
