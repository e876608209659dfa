package trace

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SacctColumns are what to ask sacct for: sacct -a -P -o with these, commas between. Without -X, since only steps know how much of a
// GPU was used (gres/gpumem and gres/gpuutil in TRESUsageInMax, with a Slurm that was built with NVML).
var SacctColumns = []string{"JobID", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "TRESUsageInMax"}

// Sacct reads the site's own jobs from sacct -P. Each needs what it was given by profile (gres/mig:2g.10gb), else the smallest
// profile that holds the most memory and utilisation that any of its steps had, else a whole GPU. It is submitted when it became eligible, so that
// waits are Slurm's, and runs as long as it did. A job with several GPUs needs as many slices, or, if they were not given by profile, whole
// GPUs: what its steps used is the sum over theirs. Times are seconds since 1970 (SLURM_TIME_FORMAT=%s) or as sacct prints them
// by itself.
//
// Left out are jobs without a GPU, that never started, and that still run.
func Sacct(file string, r io.Reader) (*Workload, error) {
	t, err := openTable(file, r, '|', "JobID", "State", "Submit", "Start", "ElapsedRaw", "AllocTRES")
	if err != nil {
		return nil, err
	}
	w := &Workload{}
	at := map[string]int{} // job -> index in Jobs, -1: left out
	err = t.each(func() error {
		id, step, isStep := strings.Cut(t.text("JobID"), ".")
		if id == "" {
			return t.bad(errors.New("no JobID"))
		}
		k, known := at[id]
		if isStep {
			if !known {
				return t.bad(fmt.Errorf("step %s of job %s comes before the job", step, id))
			}
			if k >= 0 && w.Jobs[k].Slices == 0 && t.has("TRESUsageInMax") {
				if err := w.Jobs[k].uses(t.text("TRESUsageInMax")); err != nil {
					return t.bad(fmt.Errorf("column TRESUsageInMax: %w", err))
				}
			}
			return nil
		}
		if err := t.once("job", id, "; leave -D (--duplicates) out"); err != nil {
			return err
		}
		at[id] = -1
		j, why, err := t.sacctJob(id)
		switch {
		case err != nil:
			return t.bad(err)
		case why != "":
			w.leave(why, 1)
		default:
			at[id] = len(w.Jobs)
			w.Jobs = append(w.Jobs, j)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for k := range w.Jobs {
		if j := &w.Jobs[k]; j.Profile == "" && j.MemoryMiB == 0 && j.Compute == 0 {
			j.Compute, j.Memory = 1, 1
			w.Assumed++
		}
	}
	w.settle()
	return w, nil
}

// sacctJob reads the line of a job; why says why it is left out.
func (t *table) sacctJob(id string) (j Job, why string, err error) {
	gpus, profile, err := allocated(t.text("AllocTRES"))
	start := t.text("Start")
	switch {
	case err != nil:
		return j, "", fmt.Errorf("column AllocTRES: %w", err)
	case never(start):
		return j, "never started", nil
	case gpus == 0:
		return j, "no GPU", nil
	case slices.Contains([]string{"RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED"}, firstWord(t.text("State"))):
		return j, "still runs", nil
	}
	began, err := moment(start)
	if err != nil {
		return j, "", fmt.Errorf("column Start: %w", err)
	}
	submit := t.text("Submit")
	if t.has("Eligible") && !never(t.text("Eligible")) {
		submit = t.text("Eligible")
	}
	j = Job{ID: id, Profile: profile}
	if gpus > 1 {
		j.Slices = gpus
	}
	if j.Submit, err = moment(submit); err != nil {
		return j, "", fmt.Errorf("column Submit: %w", err)
	}
	if j.Duration, err = strconv.ParseFloat(t.text("ElapsedRaw"), 64); err != nil || j.Duration < 0 || j.Duration-j.Duration != 0 {
		return j, "", fmt.Errorf("column ElapsedRaw is %q: not a number of seconds", t.text("ElapsedRaw"))
	}
	if t.has("TimelimitRaw") {
		if minutes, err := strconv.ParseFloat(t.text("TimelimitRaw"), 64); err == nil && minutes > 0 { // else UNLIMITED, Partition_Limit or nothing
			j.Limit = 60 * minutes
		}
	}
	j.Waited = max(0, began-j.Submit)
	return j, "", nil
}

func firstWord(s string) string {
	s, _, _ = strings.Cut(s, " ") // CANCELLED by 1000
	return s
}

// never is what sacct prints for a time that has not come.
func never(s string) bool { return s == "" || s == "Unknown" || s == "None" || s == "0" }

// moment reads a time, in seconds.
func moment(s string) (float64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return float64(n), nil
	}
	at, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		return 0, fmt.Errorf("%q is no time", s)
	}
	return float64(at.Unix()), nil
}

// allocated reads AllocTRES: how many GPUs, or slices of a profile if that is said.
func allocated(tres string) (gpus int, profile string, err error) {
	for _, item := range strings.Split(tres, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		mig, typed := strings.CutPrefix(name, "gres/mig:")
		if name != "gres/gpu" && !typed {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return 0, "", fmt.Errorf("%s is no count", item)
		}
		switch {
		case !typed && profile == "":
			gpus = n
		case typed && n > 0 && mig != "closed":
			profile, gpus = mig, n
		}
	}
	return gpus, profile, nil
}

// uses keeps the most memory and utilisation that a step of the job had.
func (j *Job) uses(tres string) error {
	for _, item := range strings.Split(tres, ",") {
		name, value, _ := strings.Cut(item, "=")
		switch name {
		case "gres/gpumem":
			bytes, err := amount(value)
			if err != nil {
				return err
			}
			j.MemoryMiB = max(j.MemoryMiB, bytes/(1<<20))
		case "gres/gpuutil":
			percent, err := amount(value)
			if err != nil {
				return err
			}
			j.Compute = max(j.Compute, min(percent/100, 1))
		}
	}
	return nil
}

// amount reads 1234, 512K, 9.5G: in units of 1024.
func amount(s string) (float64, error) {
	digits := strings.TrimRight(s, "KMGTP")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || x < 0 || x-x != 0 || len(s)-len(digits) > 1 {
		return 0, fmt.Errorf("%q is no amount", s)
	}
	if unit := s[len(digits):]; unit != "" {
		for range 1 + strings.Index("KMGTP", unit) {
			x *= 1024
		}
	}
	return x, nil
}
