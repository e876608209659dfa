package eligible

import (
	"strconv"
	"strings"

	"caelum/internal/slurm"
)

// LacksLicense returns the first licence of which the job requests more than are free. The result is empty if enough of
// all requested licences are free. The result is also empty for a job that accepts alternatives (|), because only
// slurmctld chooses the alternative. slurmctld reserves nothing for a job that lacks a licence. slurmctld sets the
// reason Licenses only when slurmctld evaluates the job. A job behind another job waits with the reason Priority
// (job_scheduler.c, 22.05.8).
func LacksLicense(q slurm.Queue, w slurm.Waiting) string {
	if strings.Contains(w.Licenses, "|") {
		return ""
	}
	for _, item := range strings.Split(w.Licenses, ",") {
		name, count, counted := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if !counted {
			n = 1
		} else if err != nil {
			continue
		}
		if free, known := q.Licenses[name]; known && free < n {
			return name
		}
	}
	return ""
}
