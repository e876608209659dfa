package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestRuns runs the command with the flags in testdata/runs and compares the results. The file contains six digits of
// each figure, and no figures that are 0. Rewrite it with: go test ./simulate -run Runs -rewrite
func TestRuns(t *testing.T) {
	datadriven.RunTest(t, "testdata/runs", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		if err := run(words(d.Input), &out); err != nil {
			return "error: " + err.Error() + "\n"
		}
		rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, row := range rows[1:] {
			for k, value := range row {
				if x, err := strconv.ParseFloat(value, 64); err == nil {
					value = strconv.FormatFloat(x, 'g', 6, 64)
				}
				if value != "" && value != "0" {
					fmt.Fprintf(&text, "%s=%s ", rows[0][k], value)
				}
			}
			text.WriteString("\n")
		}
		return strings.ReplaceAll(text.String(), " \n", "\n")
	})
}

// words splits a command line. Single quotes enclose a word with spaces.
func words(line string) (all []string) {
	for k, part := range strings.Split(line, "'") {
		if k%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// TestLimitsAreCorrected tests that, with --ends corrected, policies expect jobs to end earlier than their time limits.
// First, 40 jobs run for a hundredth of their time limits. Job 41, which has a time limit of ten minutes, then uses
// half of the GPU for one minute. Job 42 waits for the whole GPU. Job 43, which is small and has a time limit of five
// minutes, must wait, because the policy expects job 41 to end soon. With uncorrected limits, job 43 starts
// immediately.
func TestLimitsAreCorrected(t *testing.T) {
	var file strings.Builder
	fmt.Fprintln(&file, "JobID|State|Submit|Start|ElapsedRaw|TimelimitRaw|AllocTRES")
	job := func(id, submit, runs, limit int, profile string) {
		fmt.Fprintf(&file, "%d|COMPLETED|%d|%d|%d|%d|gres/gpu=1,gres/mig:%s=1\n",
			id, submit, submit, runs, limit, profile)
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
	for ends, want := range map[string]string{"limits": "59", "corrected": "158"} {
		var out strings.Builder
		err := run([]string{"--sacct", path, "--gpus", "A100-40GB:1", "--queue", "easy", "--policies", "best-fit",
			"--ends", ends}, &out)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for k, name := range rows[0] {
			if name == "longest_wait" && rows[1][k] != want {
				t.Errorf("--ends %s: the longest wait is %s s, want %s", ends, rows[1][k], want)
			}
		}
	}
}
