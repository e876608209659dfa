package eligible

import (
	"strconv"
	"strings"

	"caelum/internal/slurm"
)

// LacksLicense returns the first licence of which the job requests more than are free, or "" if there is none.
// slurmctld reserves nothing for such a job. It sets the reason Licenses only when it evaluates the job; a job behind
// another one waits with the reason Priority (job_scheduler.c, 22.05.8). For a job that accepts alternatives (|),
// LacksLicense returns "" and leaves the decision to slurmctld.
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
