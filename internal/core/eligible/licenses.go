package eligible

import (
	"strconv"
	"strings"

	"caelum/internal/slurm"
)

// LacksLicense returns the first licence of which the job requests more than are free. The result is empty if enough
// licences of each kind are free, or if the job accepts alternatives (|), because slurmctld chooses between them.
// slurmctld reserves nothing for a job that lacks a licence. slurmctld sets the reason Licenses only when it evaluates
// the job; until then, a job that is queued behind another job is pending with the reason Priority (job_scheduler.c,
// 22.05.8).
func LacksLicense(q slurm.Queue, w slurm.Waiting) string {
	if w.Licenses == "" || strings.Contains(w.Licenses, "|") {
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
