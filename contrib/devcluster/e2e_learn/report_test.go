//go:build e2e

package e2elearn

import (
	"encoding/json"
	"errors"
	"math"
	"os/exec"
	"strings"
	"time"

	"caelum/internal/cli/jobreport"
)

// reports checks `caelum report` with the jobs of TestUsage, which are user1's: the list, and a report on each kind of
// job. seconds is the sum that `caelum usage` shows. Every command runs as an ordinary user. If slurmdbd hides other
// users' jobs, user2 must see none of them.
func (s site) reports(seconds float64) {
	s.Helper()
	var all []jobreport.Report
	text := s.must("user1", "caelum", "report", "--json", "--last", "1000")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.Fatal(err)
	}
	sum, last := 0.0, map[string]string{} // the last job of each kind
	for _, r := range all {
		sum += 3600 * r.GPUHours
		j := r.Jobs[0]
		kind := j.State
		switch {
		case strings.Contains(r.ID, "_"):
			kind, r.ID = "array", strings.Split(r.ID, "_")[0]
		case len(j.Earlier) > 0:
			kind = "requeued"
		case len(j.Nodes) > 1:
			kind = "two nodes"
		}
		last[kind] = r.ID
		if j.Run > 0 && (j.Requested == "" || j.GPUs > 2) {
			s.Errorf("the report on job %s shows other GPUs than requested: %+v", r.ID, j)
		}
	}
	if math.Abs(sum-seconds) > 0.1 {
		s.Errorf("the reports on all jobs contain %.1f GPU-seconds, and caelum usage shows %.1f", sum, seconds)
	}
	for kind, id := range last {
		text := s.must("user1", "caelum", "report", id)
		if !strings.Contains(text, "job "+id+" ") && !strings.Contains(text, "array "+id) ||
			!strings.Contains(text, "GPU") {
			s.Errorf("the report on job %s (%s):\n%s", id, kind, text)
		}
	}
	s.private(last)
}

// private makes slurmdbd hide other users' jobs.
func (s site) private(jobs map[string]string) {
	s.Helper()
	s.must("root", "sh", "-c", "echo PrivateData=jobs,users,accounts,usage >>/etc/slurm/slurmdbd.conf")
	s.must("root", "sacctmgr", "-i", "reconfigure")
	for end := time.Now().Add(time.Minute); s.must("user2", "sacct", "-a", "-X", "-n") != ""; {
		if time.Now().After(end) {
			s.Fatal("slurmdbd still shows user2 the jobs of user1")
		}
		time.Sleep(200 * time.Millisecond)
	}
	for kind, id := range jobs {
		stdout, stderr, err := s.Exec(s.Context(), "user2", "caelum", "report", id)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 4 || stdout != "" ||
			!strings.Contains(stderr, "slurmdbd shows you no record of job "+id) {
			s.Errorf("user2's report on job %s (%s): %v, %s%s", id, kind, err, stdout, stderr)
		}
		if text := s.must("user1", "caelum", "report", id); !strings.Contains(text, id) {
			s.Errorf("user1's report on the own job %s (%s):\n%s", id, kind, text)
		}
	}
	if text := s.must("user2", "caelum", "usage", "--json"); !strings.Contains(text, `"rows": []`) {
		s.Errorf("user2's usage contains other users' jobs:\n%s", text)
	}
}
