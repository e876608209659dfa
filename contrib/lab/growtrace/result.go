package growtrace

import (
	"fmt"
	"io"
	"strings"
)

const (
	// GPUs is the number of A100-40GB GPUs for which the trace is intended. On average, the jobs need about 70% of the
	// GPUs' units if each job runs on its tightest profile.
	GPUs = 16
	// Notice is the time, in seconds, after which a user resubmits a job that has run out of memory.
	Notice = 60
	// RequeueDelay is the time, in seconds, before a requeued job can start. It is cred_expire plus one second.
	RequeueDelay = 6
)

// Result holds the results of a trace. Times are in seconds and are sums over all jobs. A run is lost if it was
// followed by another run of the same job.
type Result struct {
	Name            string
	Jobs            int
	Turnaround      float64 // from the first submission to the end of the last run
	Short           int     // jobs with a run that ran, or would have run, out of memory
	ShortTurnaround float64
	Used, Lost      float64 // GPU-seconds
	Failures        int     // runs that ran out of memory, after which the user resubmitted the job
	Requeues        int
	Stopped         int // requeues before a job would have run out of memory
	Needless        int // requeues of jobs that would not have run out of memory
}

// Print prints results as a Markdown table.
func Print(w io.Writer, all []Result) error {
	const head = "| mode | GPU-seconds lost | share of all GPU-seconds | mean turnaround | " +
		"of jobs that lacked memory | failures that users see | requeues | ... before a failure | ... needless |\n"
	text := head + strings.Repeat("|---", strings.Count(head, "|")-1) + "|\n"
	for _, r := range all {
		text += fmt.Sprintf("| %s | %.0f | %.1f%% | %.1f s | %.1f s | %d | %d | %d | %d |\n", r.Name, r.Lost,
			100*r.Lost/r.Used, r.Turnaround/float64(r.Jobs), r.ShortTurnaround/float64(max(r.Short, 1)), r.Failures,
			r.Requeues, r.Stopped, r.Needless)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
