package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// convertible is a queue with one job. script does what job_submit.lua does when it finds the mark in AdminComment.
type convertible struct {
	job    slurm.Waiting
	script func(*slurm.Job) error
	calls  []string
}

func (c *convertible) Queue(context.Context) (slurm.Queue, error) {
	return slurm.Queue{Waiting: []slurm.Waiting{c.job}}, nil
}
func (c *convertible) Job(context.Context, uint32) (slurm.Job, error) { return *c.job.Job, nil }
func (c *convertible) Hold(context.Context, uint32) error {
	c.calls, c.job.Priority = append(c.calls, "hold"), 0
	return nil
}
func (c *convertible) Release(context.Context, uint32) error {
	c.calls, c.job.Priority = append(c.calls, "release"), 9
	return nil
}
func (c *convertible) SetAdminComment(_ context.Context, _ uint32, text string) error {
	c.calls = append(c.calls, text)
	if !strings.HasPrefix(text, slurm.ConvertMark) || c.script == nil {
		c.job.AdminComment = text
		return nil
	}
	return c.script(c.job.Job)
}
func (c *convertible) ConvertMarks(_ context.Context, waiting []slurm.Waiting) (map[uint32]string, error) {
	if len(waiting[0].PerNode.Named("mig")) > 0 {
		return nil, nil
	}
	return map[uint32]string{7: slurm.ConvertMark}, nil
}
func (c *convertible) RemoveSlices(_ context.Context, _ slurm.Waiting, shared, comment string) error {
	c.calls = append(c.calls, "remove "+shared, comment)
	c.job.PerNode, c.job.ExcNodes = gpu1, nil
	return nil
}

var (
	gpu1   = slurm.GRESList{{Name: "gpu", Count: 1}}
	slice1 = slurm.GRESList{{Name: "gpu", Count: 1}, {Name: "mig", Type: "1g.5gb", Count: 1}}
)

// converts returns a script that adds a slice and sets the comment.
func converts(comment string, held bool) func(*slurm.Job) error {
	return func(j *slurm.Job) error {
		if j.PerNode, j.AdminComment = slice1, comment; held {
			j.Priority = 0
		}
		return nil
	}
}

// recordedLate returns a script that slurmctld runs only at the third attempt, after slurmdbd has recorded the job.
func recordedLate() func(*slurm.Job) error {
	tries := 0
	indexPause = 0
	return func(j *slurm.Job) error {
		if tries++; tries < 3 {
			return slurm.ErrNoIndex
		}
		return converts("", false)(j)
	}
}

// unconverted returns a script that holds the job for a reason.
func unconverted(reason string) func(*slurm.Job) error {
	return func(j *slurm.Job) error {
		j.Priority, j.AdminComment = 0, "note caelum:unconverted="+reason
		return nil
	}
}

// TestConvertJobs runs the command on one job, and checks its requests and its output. A case without output expects
// none.
func TestConvertJobs(t *testing.T) {
	const mark, sliced = slurm.ConvertMark, "requests gpu:1,mig:1g.5gb:1"
	queued := slurm.Job{Priority: 5}
	refuses := func(*slurm.Job) error { return errors.New("Invalid GRES") }
	held := func(reason, comment string) slurm.Job {
		return slurm.Job{Reason: reason, State: "PENDING", PerNode: slice1, AdminComment: comment}
	}
	for name, tc := range map[string]struct {
		job    slurm.Job
		script func(*slurm.Job) error
		calls  string // the requests to slurmctld
		output string
		failed bool
	}{
		"converted":         {queued, converts("", false), mark, sliced, false},
		"held by its user":  {slurm.Job{}, converts("", false), mark, sliced + " (held)", false},
		"names a node":      {queued, converts("caelum:held", true), mark + "|hold", sliced + " (held)", false},
		"has slices":        {slurm.Job{Priority: 5, PerNode: slice1}, nil, "", "", false},
		"is not managed":    {queued, func(*slurm.Job) error { return nil }, mark, "", false},
		"has started":       {queued, func(*slurm.Job) error { return slurm.ErrJobState }, mark, "", false},
		"unconverted":       {queued, unconverted("a_b\x1b"), mark, "not changed: a b? (held)", true},
		"not recorded yet":  {queued, recordedLate(), mark + "|" + mark + "|" + mark, sliced, false},
		"refused":           {queued, refuses, mark + "|hold", "not changed: Invalid GRES (held)", true},
		"no job_submit.lua": {slurm.Job{Priority: 5, AdminComment: "note"}, nil, mark + "|note", "", true},
		"back": {slurm.Job{Priority: 5, PerNode: slice1, AdminComment: "caelum:share=cpus note caelum:key=1"}, nil,
			"remove cpus|note", "requests gpu:1", false},
		"back, held by Caelum": {held("JobHeldUser", "caelum:held note caelum:share=cpus"), nil,
			"remove cpus|note caelum:share=cpus caelum:unconverted=back|release|remove cpus|note", "requests gpu:1",
			false},
		"back, not on offer": {held("BadConstraints", "caelum:released"), nil,
			"remove |caelum:unconverted=back|release|remove |", "requests gpu:1", false},
		"back, second run": {held("JobHeldUser", "caelum:unconverted=back"), nil,
			"remove |caelum:unconverted=back|release|remove |", "requests gpu:1", false},
		"back, held by its user": {slurm.Job{PerNode: slice1}, nil, "remove |", "requests gpu:1 (held)", false},
		"back, excludes a catalogue node": {slurm.Job{Priority: 5, ExcNodes: []string{"n1", "mig-catalog1"}}, nil,
			"remove |", "requests gpu:1", false},
		"back, untouched": {slurm.Job{Priority: 5, ExcNodes: []string{"n1"}}, nil, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.job.ID, tc.job.User = 7, "u"
			if tc.job.PerNode == nil {
				tc.job.PerNode = gpu1
			}
			c := &convertible{job: slurm.Waiting{Job: &tc.job}, script: tc.script}
			var out bytes.Buffer
			err := runConvertJobs(t.Context(), &out, strings.HasPrefix(name, "back"), c)
			want := ""
			if tc.output != "" {
				want = "job 7 of u: " + tc.output + "\n"
			}
			if (err != nil) != tc.failed || out.String() != want || strings.Join(c.calls, "|") != tc.calls {
				t.Errorf("output %q, calls %q, error %v; want %q, %q", out.String(), c.calls, err, want, tc.calls)
			}
			if errors.Is(err, errNoScript) != (name == "no job_submit.lua") {
				t.Errorf("error %v", err)
			}
		})
	}
}
