package slurm

// RecordingParsers lets the tests of package slurm_test add commands to TestStory.
var RecordingParsers = recordingParsers

// ParseWaiting returns the pending jobs in a recording.
func ParseWaiting(recording string) ([]Waiting, error) {
	jobs, err := parseJobs(recording, recordedSep)
	return toWaiting(jobs), err
}
