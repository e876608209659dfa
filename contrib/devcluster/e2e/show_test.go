//go:build e2e

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// volatile matches the values that change without a job, and those that may be old in the output of caelum-show.
var volatile = regexp.MustCompile(
	`(CPUAlloc|CPULoad|AllocMem|FreeMem|State|AllocTRES|LastBusyTime|CurrentWatts|AveWatts)=[^ \n]*`)

// gresOfJob matches the GRES of a job with one 1g.5gb slice on n1.
var gresOfJob = regexp.MustCompile(
	`^StartTime=[0-9]+ Restarts=0\nNode=n1 GRES=gpu:a100:1\(IDX:0\),mig:1g\.5gb(:1)?\(CNT:1\)$`)

// TestShow checks that caelum-show prints the same node record as scontrol while a job has a slice, except for the
// partitions, and that it prints the job's GRES.
func TestShow(t *testing.T) {
	s := quietly(t, shared)
	id := s.submit(t, "./task show-node 1 15", "--gres=gpu:1", "-w", "n1")
	s.until(t, id, "the job runs", func(r row) bool { return r.state == "RUNNING" })
	record := func(args ...string) string {
		text := volatile.ReplaceAllString(s.must(t, "n1", "root", args...), "$1=")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "   Partitions=") })
		return strings.Join(lines, "\n")
	}
	var got, want string
	for range 20 { // the agent may write the record between the two commands
		got, want = record("caelum-show", "node", "n1"), record("scontrol", "-d", "show", "node", "n1")
		if got == want && strings.Contains(got, "GresUsed=gpu:a100:1(IDX:0),") {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if got != want || !strings.Contains(got, "GresUsed=gpu:a100:1(IDX:0),") {
		t.Errorf("caelum-show prints\n%s\nscontrol prints\n%s", got, want)
	}
	both := s.must(t, "n1", "root", "caelum-show", "node", "n1", "n1")
	if n := strings.Count(both, "NodeName=n1 "); n != 2 {
		t.Errorf("caelum-show node n1 n1 prints %d records", n)
	}
	a := s.call(t, "n1", "root", "", "caelum-show", "node", "none")
	if a.status != 1 || a.stdout != "Node none not found\n" {
		t.Errorf("an unknown node: %+v", a)
	}
	job := s.must(t, "n1", "root", "caelum-show", "job", id)
	if !gresOfJob.MatchString(job) {
		t.Errorf("caelum-show job prints %q", job)
	}
	s.completed(t, id)
	a = s.call(t, "n1", "root", "", "caelum-show", "job", "999999")
	if a.status != 1 || !strings.Contains(a.stderr, "Invalid job id specified") {
		t.Errorf("an unknown job: %+v", a)
	}
}
