package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/sim/trace"
)

// workload returns the jobs to simulate. Depending on the flags, it generates them or reads them from a file or from
// sacct.
func (o simulateOptions) workload(gpus int) (*trace.Workload, error) {
	var given []string
	for _, s := range []string{o.churn, o.sacct} {
		if s != "" {
			given = append(given, s)
		}
	}
	if o.fromSacct {
		given = append(given, "sacct")
	}
	if len(o.observed) > 0 {
		given = append(given, "observed")
	}
	if len(given) != 1 {
		return nil, usageError{
			errors.New("choose exactly one workload: --churn, --from-sacct, --sacct or --observed; --help " +
				"describes them"),
		}
	}
	switch {
	case o.churn != "":
		return o.synthetic(gpus)
	case o.fromSacct:
		return o.askSacct()
	case len(o.observed) > 0:
		return observedWorkload(o.observed)
	}
	f, err := os.Open(o.sacct)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.Sacct(o.sacct, f)
}

// askSacct reads the jobs of this site from sacct.
func (o simulateOptions) askSacct() (*trace.Workload, error) {
	cmd := exec.Command(
		"sacct",
		"-a",
		"-P",
		"--starttime="+o.since,
		"--endtime="+o.until,
		"--format="+strings.Join(trace.SacctColumns, ","),
	)
	cmd.Env = append(os.Environ(), "SLURM_TIME_FORMAT=%s")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("couldn't run sacct: %w; use --sacct to read the output of sacct on another host", err)
	}
	workload, err := trace.Sacct("sacct", out)
	io.Copy(io.Discard, out) // even after an error, the output must be drained so that sacct can exit
	if failed := cmd.Wait(); failed != nil {
		return nil, fmt.Errorf("couldn't read jobs from sacct: %w: %s", failed, strings.TrimSpace(stderr.String()))
	}
	return workload, err
}

// synthetic generates the jobs for --churn.
func (o simulateOptions) synthetic(gpus int) (*trace.Workload, error) {
	if o.jobs < 1 || !(o.load > 0) {
		return nil, usageError{errors.New("--jobs and --load must be above 0")}
	}
	var names []string
	for _, m := range trace.Mixes {
		if m.Name == o.churn {
			c := trace.Churn{Mix: m.Mix, Jobs: o.jobs, GPUs: gpus, Load: o.load, Seed: o.seed}
			return &trace.Workload{Jobs: slices.Collect(c.All())}, nil
		}
		names = append(names, m.Name)
	}
	return nil, usageError{fmt.Errorf("--churn %s: unknown mix; the mixes are %s", o.churn, strings.Join(names, ", "))}
}

// relative matches the times relative to now that sacct accepts.
var relative = regexp.MustCompile(`^now(?:([+-][0-9]+)(second|minute|hour|day|week)s?)?$`)

// dateOf returns the date that a time in sacct's format denotes. It returns all formats unchanged that are not relative
// to now.
func dateOf(text string, now time.Time) string {
	m := relative.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	n, _ := strconv.Atoi(m[1])
	unit := map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour,
		"day": 24 * time.Hour, "week": 7 * 24 * time.Hour}[m[2]]
	return now.Add(time.Duration(n) * unit).Format(time.DateOnly)
}

// describe returns the output line that describes the workload.
func (o simulateOptions) describe() string {
	switch {
	case o.churn != "":
		return fmt.Sprintf("churn %s, load %v, seed %d", o.churn, o.load, o.seed)
	case o.fromSacct:
		now := time.Now()
		return fmt.Sprintf("jobs of this site from %s to %s", dateOf(o.since, now), dateOf(o.until, now))
	}
	return cmp.Or(o.sacct, strings.Join(o.observed, ", "))
}
