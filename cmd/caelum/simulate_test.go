package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLimitsAreNotCorrected tests that, with --ends limits, policies use the time limits without correction, as the
// agents do. First, 40 jobs run for a hundredth of their time limits. Job 41, which has a time limit of ten minutes,
// then uses half of the GPU for one minute. Job 42 waits for the whole GPU. Job 43, which is small and has a time limit
// of five minutes, must start immediately, because the policy expects job 41 to run for more than five minutes. If the
// policy corrected the limits, it would expect job 41 to end earlier, and job 43 would wait.
func TestLimitsAreNotCorrected(t *testing.T) {
	var file strings.Builder
	fmt.Fprintln(&file, "JobID|State|Submit|Start|ElapsedRaw|TimelimitRaw|AllocTRES")
	job := func(id, submit, runs, limit int, profile string) {
		fmt.Fprintf(
			&file,
			"%d|COMPLETED|%d|%d|%d|%d|gres/gpu=1,gres/mig:%s=1\n",
			id, submit, submit, runs, limit, profile,
		)
	}
	for k := range 40 {
		job(k+1, 1000+10*k, 6, 10, "1g.5gb")
	}
	job(41, 2000, 60, 10, "4g.20gb")
	job(42, 2001, 100, 10, "7g.40gb")
	job(43, 2002, 30, 5, "1g.5gb")
	path := filepath.Join(t.TempDir(), "jobs.sacct")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newSimulate(&globals{json: true})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--sacct", path, "--gpus", "A100-40GB:1", "--queue", "easy", "--policies", "best-fit",
		"--ends", "limits"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var got simulation
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got := got.Policies[1].LongestWait; got != 59 { // the wait of job 42; job 43 does not wait
		t.Errorf("the longest wait is %v s, want 59", got)
	}
}

// TestDateOf checks the dates of times relative to now.
func TestDateOf(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"now":          "2026-03-02",
		"now-30days":   "2026-01-31",
		"now-1week":    "2026-02-23",
		"now-13hours":  "2026-03-01",
		"now+12hours":  "2026-03-03",
		"now-1440":     "now-1440",
		"2026-01-01":   "2026-01-01",
		"midnight":     "midnight",
		"now-5minutes": "2026-03-02",
	} {
		if got := dateOf(text, now); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
