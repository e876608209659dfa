package slurm

import "strings"

// RecordingParsers makes recordingParsers available to package slurm_test, which adds commands to TestStory.
var RecordingParsers = recordingParsers

// ParseWaiting returns the pending jobs in a recording.
func ParseWaiting(recording string) ([]Waiting, error) {
	jobs, err := parseJobs(strings.NewReader(recording), recordedSep)
	return toWaiting(jobs), err
}
