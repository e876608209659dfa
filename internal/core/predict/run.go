package predict

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Run is a run of a job on one node, with its slices and their usage.
type Run struct {
	Job     uint32
	Restart int // the number of times that the job had been requeued before this run
	Node    string

	// Key is the job key, and Fingerprint is the script fingerprint (spank/submit/KEY.md). Unknown values are
	// empty.
	Key, Fingerprint    string
	UID                 uint32
	User, Account, Name string
	// Args holds the numbers in the arguments of the job's script (Numbers), or is nil if there are none.
	Args []float64

	GPUType string `json:"Board"` // the Type of the GPU in gres.conf, e.g. a100; stored observations use the key Board
	Profile string
	Slices  int // the number of slices of this profile, at least 1

	Start   int64   // the time at which the job received its slices, in Unix seconds
	Seconds float64 // the time for which the job held its slices

	// Samples is the number of usage samples of the slices. If it is 0, the usage is unknown. PeakMiB is the highest
	// memory usage of any slice. MedianMiB and HighMiB are the median and the 95% quantile of the memory usage over
	// time, for the slice with the highest usage.
	Samples                     int
	PeakMiB, MedianMiB, HighMiB float64
	// Util is the mean fraction of the slice's compute capacity that was busy, from 0 to 1, or -1 if the GPU does not
	// report utilisation.
	Util float64
	// Processes is the largest number of processes on one slice in any sample, or 0 if unknown.
	Processes int

	// State is the job's state in Slurm, such as COMPLETED or FAILED. It is empty until the state is known. Exit is the
	// exit status of the batch script.
	State string
	Exit  int

	// End is EndOOM or EndForeseen if the agent requeued the job because the slice's memory was insufficient, and empty
	// otherwise. ForeseenMiB is the peak memory use that the agent forecast while the job was running, or 0.
	End         string
	ForeseenMiB float64

	// Xids lists the Xid errors on the run's slices by code, for example "13x3+31" for three times Xid 13 and one
	// Xid 31.
	Xids string
}

// These constants are the values of Run.End.
const (
	EndOOM      = "oom"      // the job had run out of memory
	EndForeseen = "foreseen" // the job was still running, but its forecast peak exceeded the slice's memory
)

// tagRun is the prefix of a run's summary in a job's accounting record.
const tagRun = "caelum:run="

// errSummary is the error for a summary that cannot be parsed.
var errSummary = errors.New("the text is not a summary of a run")

// Summary formats the run for the job's accounting record. The result does not contain spaces:
//
//	caelum:run=n1,2g.10gb,a100,at=1795339216,ran=3590s,peak=5321M,p95=5100M,median=4800M,util=37%,processes=1,
//	samples=3590
//
// The summary is a single line. For two slices, the profile is followed by x2. For the second run of a requeued job,
// the summary contains restart=1. If the agent ended the run because its memory was insufficient, the summary contains
// end=oom or end=foreseen and, if the agent forecast the peak, the forecast, for example foreseen=12800M. If
// the driver reported Xid errors on the slices, it contains them, for example xid=13x3+31. Earlier releases ignore
// these fields. Unknown values are omitted, as are the fields of Run that the accounting record already
// contains. sacctmgr converts the summary to lower case (22.05.8), so Summaries ignores case.
func (r Run) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s,%s", tagRun, r.Node, r.Profile)
	if r.Slices > 1 {
		fmt.Fprintf(&b, "x%d", r.Slices)
	}
	fmt.Fprintf(&b, ",%s,at=%d,ran=%.0fs", r.GPUType, r.Start, r.Seconds)
	if r.Samples > 0 {
		fmt.Fprintf(&b, ",peak=%.0fM,p95=%.0fM,median=%.0fM", r.PeakMiB, r.HighMiB, r.MedianMiB)
		if r.Util >= 0 {
			fmt.Fprintf(&b, ",util=%.0f%%", 100*r.Util)
		}
		if r.Processes > 0 {
			fmt.Fprintf(&b, ",processes=%d", r.Processes)
		}
		fmt.Fprintf(&b, ",samples=%d", r.Samples)
	}
	if r.Restart > 0 {
		fmt.Fprintf(&b, ",restart=%d", r.Restart)
	}
	if r.End != "" {
		fmt.Fprintf(&b, ",end=%s", r.End)
	}
	if r.ForeseenMiB > 0 {
		fmt.Fprintf(&b, ",foreseen=%.0fM", r.ForeseenMiB)
	}
	if r.Xids != "" {
		fmt.Fprintf(&b, ",xid=%s", r.Xids)
	}
	return b.String()
}

// Summaries parses the summaries in a job's accounting record, which may also contain other text. Fields that are
// missing from a summary are zero. Malformed summaries are ignored.
func Summaries(record string) (runs []Run) {
	for _, word := range strings.Fields(record) {
		if text, ok := strings.CutPrefix(word, tagRun); ok {
			if r, err := parseSummary(text); err == nil {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

func parseSummary(text string) (Run, error) {
	parts := strings.Split(text, ",")
	if len(parts) < 4 {
		return Run{}, errSummary
	}
	r := Run{Node: parts[0], Profile: parts[1], GPUType: parts[2], Slices: 1, Util: -1}
	if k := strings.LastIndexByte(r.Profile, 'x'); k > 0 {
		if n, err := strconv.ParseUint(r.Profile[k+1:], 10, 16); err == nil && n > 0 {
			r.Profile, r.Slices = r.Profile[:k], int(n)
		}
	}
	if r.Node == "" || r.Profile == "" || r.GPUType == "" {
		return Run{}, errSummary
	}
	seen := map[string]bool{}
	for _, part := range parts[3:] {
		name, value, ok := strings.Cut(part, "=")
		if !ok || seen[name] {
			return Run{}, errSummary
		}
		seen[name] = true
		var err error
		switch name {
		case "at":
			r.Start, err = strconv.ParseInt(value, 10, 64)
		case "ran":
			r.Seconds, err = measure(value, "s")
		case "peak":
			r.PeakMiB, err = measure(value, "M")
		case "p95":
			r.HighMiB, err = measure(value, "M")
		case "median":
			r.MedianMiB, err = measure(value, "M")
		case "util":
			r.Util, err = measure(value, "%")
			r.Util /= 100
		case "processes":
			r.Processes, err = strconv.Atoi(value)
		case "samples":
			r.Samples, err = strconv.Atoi(value)
		case "restart":
			r.Restart, err = strconv.Atoi(value)
		case "end":
			r.End = parseEnd(value)
		case "foreseen":
			r.ForeseenMiB, err = measure(value, "M")
		case "xid":
			r.Xids = parseXids(value)
		} // ignore fields from later versions
		if err != nil {
			return Run{}, errSummary
		}
	}
	if !seen["at"] || !seen["ran"] || r.Start <= 0 || r.Samples < 0 || r.Processes < 0 || r.Restart < 0 || r.Util > 1 ||
		(r.Samples > 0) != seen["peak"] {
		return Run{}, errSummary
	}
	return r, nil
}

// parseEnd parses Run.End, regardless of case. It returns an empty string for values from later versions.
func parseEnd(text string) string {
	if end := strings.ToLower(text); end == EndOOM || end == EndForeseen {
		return end
	}
	return ""
}

// measure parses a number and its unit, regardless of case. The number must be finite and nonnegative.
func measure(text, unit string) (float64, error) {
	number, ok := strings.CutSuffix(strings.ToLower(text), strings.ToLower(unit))
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v >= 0 && v <= 1e15) {
		return 0, errSummary
	}
	return v, nil
}

// WithSummary adds a run's summary to a job's accounting record, replacing any earlier summary of the same run.
func WithSummary(record string, r Run) string {
	words := strings.Split(record, " ")
	words = slices.DeleteFunc(words, func(w string) bool {
		text, ok := strings.CutPrefix(w, tagRun)
		if !ok {
			return false
		}
		old, err := parseSummary(text)
		return err == nil && strings.EqualFold(old.Node, r.Node) && old.Restart == r.Restart && old.Start == r.Start
	})
	return strings.TrimLeft(strings.Join(append(words, r.Summary()), " "), " ")
}
