package predict

import "math"

// A failed run has two possible explanations: the slice had too little memory, or the run failed for another reason.
// The latter is likely for a job that often fails. chance is the fraction of the job's runs that fail for other
// reasons, so the probability that this happens n times in a row is chance^n. It is compared with the fraction of the
// job's runs that ran out of memory without having shown it.
const (
	// likely is a threshold for chance^n if a failed run used nearly all of its slice's memory: below it, the run is
	// assumed to have run out of memory. It also applies to a job's first failure after its only complete run if the
	// failed run's slice is smaller than the complete run's.
	likely = 0.1
	// otherwise is the threshold for all other failed runs: below this probability of another reason, the run possibly
	// ran out of memory.
	otherwise = 0.3
	// priorFailures and priorMemory describe the fractions of runs that are assumed to fail for other reasons and for
	// lack of memory before any runs exist, out of priorTrials runs. All constants were chosen with seed 1 of
	// `go run -C contrib/lab ./learn variants`.
	priorFailures = 0.1
	priorMemory   = 0.003
	priorTrials   = 2
	// unusual is the ratio of a failed run's peak to the peak of the last complete run above which the failed run
	// certainly needed more memory than the complete run.
	unusual = 1.05
	// early is a fraction of the duration of the shortest complete run. After two consecutive failures that ended
	// sooner, the slice becomes larger whatever happened before, because the trial costs little.
	early = 0.1
)

// failures determines whether each failed run ran out of memory. The zero value has not seen any runs.
type failures struct {
	complete, other int     // the numbers of complete runs and of runs that failed for reasons other than memory
	memory          int     // the number of complete runs that needed more memory than the slices of failed runs had
	least           float64 // the memory of the smallest slice on which a run was complete, in MiB; 0 if unknown
	usual, last     float64 // the lowest peak of all complete runs and the peak of the last complete run, in MiB
	shortest        float64 // the duration of the shortest complete run in seconds

	open  []*attempt // the failed runs after the last complete run
	inRow int        // the number of failed runs after the last complete run and after the last larger slice
	soon  bool       // the last run failed early
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
	short := (priorMemory + float64(f.memory)) / (priorTrials + float64(f.complete))
	if full {
		a.short = a.PeakMiB > unusual*f.last || math.Pow(chance, float64(f.inRow)) < likely
		return
	}
	n := f.inRow
	if a.PeakMiB < asFar*f.usual { // the run did not progress as far as the complete runs
		n++
		soon := a.Seconds < early*f.shortest
		a.early = soon && f.soon
		f.soon = soon
		a.doubtful = a.early || f.complete < 2 && len(f.open) == 1 && memory < f.least && chance < likely
	}
	f.soon = f.soon && n > f.inRow
	other := math.Pow(chance, float64(n))
	a.doubtful = a.doubtful || other/(other+short) < otherwise
}

// completed records a complete run. If it ran on a larger slice than failed runs before it, those ran out of memory if
// this run used more memory than their slices had, or if they ended early. A doubtful run remains undecided. Otherwise,
// there was another reason.
func (f *failures) completed(a *attempt) {
	memory, short := a.promised(), false
	for _, o := range f.open {
		switch {
		case o.promised() < memory && (o.early || o.promised()*usable < a.PeakMiB):
			o.short, short = true, true
		case o.End == "" && (o.promised() >= memory || !o.short && !o.doubtful):
			f.other++
		}
	}
	if short {
		f.memory++
	}
	if memory > 0 && (f.least == 0 || memory < f.least) {
		f.least = memory
	}
	if f.complete == 0 || a.PeakMiB < f.usual {
		f.usual = a.PeakMiB
	}
	if f.complete == 0 || a.Seconds < f.shortest {
		f.shortest = a.Seconds
	}
	f.complete, f.last = f.complete+1, a.PeakMiB
	f.open, f.inRow, f.soon, f.on = nil, 0, false, 0
}
