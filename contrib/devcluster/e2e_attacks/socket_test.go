//go:build e2e

package e2eattacks

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// occupy submits a job of the victim that has a slice and a name, and waits until the job runs.
func occupy(s *clustertest.Site, options ...string) string {
	args := append([]string{"sbatch", "--parsable", "--job-name=thesis", "--gres=gpu:1,mig:2g.10gb:1"}, options...)
	job := s.Must("", victim, append(args, "--wrap", "cuda-process --exclusive --memory 1234 --seconds 3600")...)
	s.Running(job)
	s.Within("the agent shows the memory of the job", func() bool {
		return strings.Contains(s.Try("n1", "caelum", "status", "--json"), `"peak_mib": 1`)
	})
	return job
}

// TestSocketPrivate checks that the agent hides other users' jobs if slurmctld hides them, and that
// the owner of a job and root see all data of the job.
func TestSocketPrivate(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, Conf: []string{"PrivateData=jobs"}})
	job := occupy(s)
	if got := s.Must("", attacker, "squeue", "-h"); got != "" {
		t.Fatalf("slurmctld shows jobs to other users: %s", got)
	}
	seen := s.Must("n1", attacker, "caelum", "status", "--json") + s.Must("n1", attacker, "caelum", "status")
	for _, secret := range []string{"thesis", victim, "research", `"job": ` + job, "job " + job, "peak_mib",
		"in use, "} {
		if strings.Contains(seen, secret) {
			t.Errorf("the output for another user contains %q:\n%s", secret, seen)
		}
	}
	if !strings.Contains(seen, "2g.10gb") {
		t.Errorf("the output for another user does not show the slice:\n%s", seen)
	}
	_, hidden, err := s.ExecNode(t.Context(), "n1", attacker, "caelum", "job", job)
	_, none, _ := s.ExecNode(t.Context(), "n1", attacker, "caelum", "job", "4711")
	if err == nil || hidden != strings.ReplaceAll(none, "4711", job) {
		t.Errorf("caelum job returned %v and %q, but printed %q for a job that does not exist", err, hidden, none)
	}
	for _, who := range []string{victim, "root"} {
		for _, args := range [][]string{{"caelum", "status", "--json"}, {"caelum", "job", job, "--json"}} {
			if got := s.Must("n1", who, args...); !strings.Contains(got, "thesis") ||
				!strings.Contains(got, "peak_mib") {
				t.Errorf("the output of %q for %s does not contain the job:\n%s", args, who, got)
			}
		}
	}
	s.Must("", "root", "scancel", job)
	s.NothingLeft()
}

// TestSocketUse checks a site where slurmctld shows all jobs. caelum status must show a job to other users, but not the
// memory that it uses.
func TestSocketUse(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	job := occupy(s)
	seen := s.Must(
		"n1", attacker, "caelum", "status", "--json",
	) + s.Must(
		"n1", attacker, "caelum", "job", job, "--json",
	)
	if !strings.Contains(seen, "thesis") || strings.Contains(seen, "peak_mib") || strings.Contains(seen, `"work"`) {
		t.Errorf("the output for another user is wrong:\n%s", seen)
	}
	s.Must("", "root", "scancel", job)
	s.NothingLeft()
}

// TestSocketFlood sends requests to the agent as fast as possible. The agent must answer at a limited rate, and other
// users' jobs must still start and end.
func TestSocketFlood(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	const seconds, loops = 10, 12
	out := make(chan string)
	ctx, stop := context.WithTimeout(t.Context(), 4*seconds*time.Second)
	defer stop()
	go func() {
		out <- fmt.Sprint(s.ExecNode(ctx, "n1", attacker, "bash", "-c", fmt.Sprintf(`
for loop in {1..%d}; do
    (for ((end = SECONDS + %d; SECONDS < end;)); do
        caelum status --json 2>&1 | grep -o -e '"node": "n1"' -e 'too many calls'
    done) &
done
wait`, loops, seconds)))
	}()
	for range 3 {
		job := s.Must("", victim, "sbatch", "--parsable", "--gres=gpu:1,mig:1g.5gb:1",
			"--wrap", "cuda-process --exclusive --seconds 0.1")
		s.Completed(job)
	}
	seen := <-out
	served, refused := strings.Count(seen, `"node": "n1"`), strings.Count(seen, "too many calls")
	// The agent answers the first 50 requests immediately, and later requests at a rate of 10 per second. The start of
	// the loops also takes some time.
	if served > 50+10*3*seconds || refused == 0 {
		t.Errorf("the agent answered %d requests and refused %d requests in %d s", served, refused, seconds)
	}
	t.Logf("the agent answered %d requests and refused %d requests", served, refused)
	s.NoneDrained()
	s.NothingLeft()
}
