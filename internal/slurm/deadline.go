package slurm

import "time"

// LatestStart returns the latest time at which slurmctld would still start the job, or the zero time if the job has no
// deadline. After that time, slurmctld ends the pending job with the state DEADLINE, even though the job could run for
// a shorter time than its limit (deadline_ok in job_scheduler.c, 22.05.8 to 26.05.3).
func (j *Job) LatestStart() time.Time {
	switch {
	case j.Deadline.IsZero():
		return time.Time{}
	case j.TimeMin > 0:
		return j.Deadline.Add(-j.TimeMin)
	}
	return j.Deadline.Add(-j.TimeLimit)
}

// deadline parses the `deadline` column. squeue prints N/A for a job without a deadline, and slurmctld treats NO_VAL as
// no deadline. deadline treats a value that cannot be parsed in the same way, so that the job can still start.
func deadline(s string) time.Time {
	at, err := parseTime(s)
	if err != nil || at.Unix() <= 0 || at.Unix() == noVal {
		return time.Time{}
	}
	return at
}

// noVal is NO_VAL, the value that Slurm uses for numbers that are not set (slurm.h).
const noVal = 0xfffffffe

// timeMin parses the `mintime` column. squeue prints 0:00 for a job without --time-min, and INVALID for more than a
// year (_print_secs in squeue/print.c, 22.05.8). Slurm limits --time-min to the time limit. A value that cannot be
// parsed is treated as 0.
func timeMin(s string) time.Duration {
	least, err := ParseLimit(s)
	if err != nil {
		return 0
	}
	return least
}
