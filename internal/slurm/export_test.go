package slurm

import (
	"io"
	"strings"
)

// RecordingParsers makes recordingParsers available to package slurm_test, which adds commands to TestStory.
var RecordingParsers = recordingParsers

// ParseWaiting returns the pending jobs in a recording.
func ParseWaiting(recording string) ([]Waiting, error) {
	jobs, err := parseJobs(strings.NewReader(recording), recordedSep)
	return toWaiting(jobs), err
}

// parseJobs parses the output of squeue for jobFormat(sep).
func parseJobs(out io.Reader, sep string) ([]Job, error) { return appendJobs(nil, out, sep) }
