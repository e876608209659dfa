package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLimitsAreNotCorrected checks that, with --ends limits, policies use the time limits without a correction, as the
// agents do. First, 40 jobs run for a hundredth of their limits. Then a job with a limit of ten minutes uses half of
// the GPU for a minute, and a second job waits for the whole GPU. A third, small job with a limit of five minutes
// starts immediately, because the first job is expected to run for more than five minutes. With corrected limits, the
// first job would be expected to end earlier, and the third job would wait.
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
	longest := func(ends string) float64 {
		cmd := newSimulate(&globals{json: true})
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--sacct", path, "--gpus", "A100-40GB:1", "--queue", "easy", "--policies", "best-fit",
			"--ends", ends})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		var got simulation
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got.Policies[1].LongestWait
	}
	if got := longest("limits"); got != 59 { // the wait of the whole-GPU job; the small job did not wait
		t.Errorf("limits: the longest wait is %v s, want 59", got)
	}
	if got := longest("corrected"); got != 158 { // the wait of the small job, which starts last
		t.Errorf("corrected: the longest wait is %v s, want 158", got)
	}
}
