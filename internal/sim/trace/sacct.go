package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SacctColumns lists the columns that sacct must print. The command is `sacct -a -P -o` followed by the columns,
// separated by commas. The command must not use -X, because only step records show the GPU usage (gres/gpumem and
// gres/gpuutil in TRESUsageInMax, if Slurm was built with NVML).
var SacctColumns = []string{
	"JobID", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES",
	"TRESUsageInMax",
}

// NoGPU is the reason for leaving out jobs without a GPU.
const NoGPU = "no GPU"

// Sacct parses a site's own jobs from the output of sacct -P. If a job's allocation names a profile
// (gres/mig:2g.10gb, or gres/gpu:a100_2g.10gb with Slurm's own MIG support), the job needs its allocation. Otherwise,
// it needs the smallest profile that is sufficient for the highest memory usage and utilisation of its steps. If the
// record shows no usage, the job is assumed to need a whole GPU.
//
// The submission time is the time at which the job became eligible, so that the waiting time includes only delays for
// which Slurm is responsible. For a job that started before its eligible time, the waiting time is 0. The duration is
// the measured run time. Every task of an array and every component of a het job is a separate job. A job with several
// GPUs needs one slice per GPU. If the GPUs were not allocated by profile, the job needs whole GPUs, because a step's
// usage is the sum over its GPUs. Times are in seconds since 1970 (SLURM_TIME_FORMAT=%s) or in sacct's default format.
//
// Sacct omits jobs without a GPU, jobs that never started, and jobs that are still running. It also omits jobs with
// slices of several profiles, and jobs whose AllocTRES does not show the profile of their slices.
func Sacct(file string, r io.Reader) (*Workload, error) {
	t, err := OpenTable(file, r, bars, "JobID", "State", "Submit", "Start", "ElapsedRaw", "AllocTRES")
	if err != nil {
		return nil, err
	}
	w := &Workload{}
	at := map[string]int{} // each job's index in Jobs, or -1 if the job was omitted
	err = t.Each(func() error {
		id, step, isStep := strings.Cut(t.Text("JobID"), ".")
		if id == "" {
			return t.Bad(errors.New("no JobID"))
		}
		k, known := at[id]
		if isStep {
			if !known {
				return t.Bad(fmt.Errorf("the record of step %.60s precedes the record of its job %.60s", step, id))
			}
			if k >= 0 && w.Jobs[k].Slices == 0 && t.Has("TRESUsageInMax") {
				if err := w.Jobs[k].uses(t.Text("TRESUsageInMax")); err != nil {
					return t.Bad(fmt.Errorf("column TRESUsageInMax: %w", err))
				}
			}
			return nil
		}
		if err := t.Once("job", id, "; omit -D (--duplicates)"); err != nil {
			return err
		}
		at[id] = -1
		j, why, err := t.sacctJob(id)
		switch {
		case err != nil:
			return t.Bad(err)
		case why != "":
			w.Leave(why, 1)
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
			if j.Slices > 0 {
				w.Several++
			} else {
				w.Assumed++
			}
		}
	}
	w.Settle()
	return w, nil
}

// sacctJob parses the line that describes a job. If why is not empty, it is the reason for omitting the job.
func (t *Table) sacctJob(id string) (j Job, why string, err error) {
	given, err := allocated(t.Text("AllocTRES"))
	start, state := t.Text("Start"), firstWord(t.Text("State"))
	switch {
	case err != nil:
		return j, "", fmt.Errorf("column AllocTRES: %w", err)
	case never(start) || state == "PENDING":
		return j, "never started", nil
	case given.unclear != "":
		return j, given.unclear, nil
	case given.gpus == 0:
		return j, NoGPU, nil
	case slices.Contains([]string{"RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED"}, state):
		return j, "still runs", nil
	}
	began, err := moment(start)
	if err != nil {
		return j, "", fmt.Errorf("column Start: %w", err)
	}
	submit := "Submit"
	if t.Has("Eligible") && !never(t.Text("Eligible")) {
		submit = "Eligible"
	}
	j = Job{ID: id, Profile: given.profile}
	if given.gpus > 1 {
		j.Slices, j.Nodes = given.gpus, given.nodes
	}
	if j.Submit, err = moment(t.Text(submit)); err != nil {
		return j, "", fmt.Errorf("column %s: %w", submit, err)
	}
	if j.Duration, err = Number(t.Text("ElapsedRaw")); err != nil {
		return j, "", fmt.Errorf("column ElapsedRaw: %w", err)
	}
	if t.Has("TimelimitRaw") && !slices.Contains([]string{"", "UNLIMITED", "Partition_Limit"}, t.Text("TimelimitRaw")) {
		minutes, err := Number(t.Text("TimelimitRaw"))
		if err != nil {
			return j, "", fmt.Errorf("column TimelimitRaw: %w, nor UNLIMITED or Partition_Limit", err)
		}
		j.Limit = 60 * minutes
	}
	j.Waited = max(0, began-j.Submit)
	return j, "", nil
}

func firstWord(s string) string {
	s, _, _ = strings.Cut(s, " ") // CANCELLED by 1000
	return s
}

// never reports whether s is a string that sacct prints for a missing time.
func never(s string) bool { return s == "" || s == "Unknown" || s == "None" || s == "0" }

// moment parses a time and returns it in seconds since 1970.
func moment(s string) (float64, error) {
	if n, err := Number(s); err == nil {
		return n, nil
	}
	at, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		return 0, fmt.Errorf(
			"%.60q is not a time; write 2026-11-21T04:57:35, or seconds since 1970 (SLURM_TIME_FORMAT=%%s)",
			s,
		)
	}
	return float64(at.Unix()), nil
}

// ofGPU matches the profile in a gres/gpu type, such as 1g.5gb or a100_1g.5gb.
var ofGPU = regexp.MustCompile(`[0-9]+g\.[0-9]+gb.*$`)

// allocation holds the data from AllocTRES: the number of GPUs, or the number and profile of the slices, and the
// number of nodes.
type allocation struct {
	gpus    int
	profile string
	nodes   int
	unclear string // the reason why the profile cannot be determined
}

func allocated(tres string) (a allocation, err error) {
	slots, models, unnamed := 0, 0, 0 // gres/gpu; gres/gpu with a model; gres/mig without a profile
	cut := map[string]int{}           // slices by profile: gres/mig:1g.5gb
	own := map[string]int{}           // slices by profile with Slurm's own MIG support: gres/gpu:a100_1g.5gb
	for _, item := range strings.Split(tres, ",") {
		name, value, _ := strings.Cut(item, "=")
		name, kind, _ := strings.Cut(name, ":")
		if name != "gres/gpu" && name != "gres/mig" && name != "node" || kind == "closed" {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return a, fmt.Errorf("%.60s is not a count", item)
		}
		switch profile := ofGPU.FindString(kind); {
		case n == 0:
		case name == "node":
			a.nodes = n
		case name == "gres/mig" && kind == "":
			unnamed = n
		case name == "gres/mig":
			cut[kind] += n
		case kind == "":
			slots = n
		case profile != "":
			own[profile] += n
		default:
			models += n
		}
	}
	profiles := own
	if len(cut) > 0 { // with gres/mig, the count of gres/gpu is a number of slots
		profiles = cut
	}
	for a.profile, a.gpus = range profiles {
	}
	switch {
	case len(profiles) > 1 || len(cut) == 0 && len(own) == 1 && models > 0:
		a.unclear = "slices of several profiles"
	case len(profiles) == 0 && unnamed > 0:
		a.unclear = "slices whose profile is not in AllocTRES"
	case len(profiles) == 0:
		a.gpus = cmp.Or(slots, models)
	}
	return a, nil
}

// uses adds a step's usage to the job, so that the job's memory and utilisation are at least as high as the step's.
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

// amount parses an amount such as 1234, 512K or 9.5G. The suffixes are powers of 1024.
func amount(s string) (float64, error) {
	digits := strings.TrimRight(s, "KMGTP")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || x < 0 || x-x != 0 || len(s)-len(digits) > 1 {
		return 0, fmt.Errorf("%.60q is not an amount such as 1234, 512K or 9.5G", s)
	}
	if unit := s[len(digits):]; unit != "" {
		for range 1 + strings.Index("KMGTP", unit) {
			x *= 1024
		}
	}
	return x, nil
}
