//go:build e2e

package e2eattacks

import (
	"fmt"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// occupy submits, as the victim, a job with a slice and a name, and waits until it is running.
func occupy(s *clustertest.Site, options ...string) string {
	args := append([]string{"sbatch", "--parsable", "--job-name=thesis", "--gres=gpu:1,mig:2g.10gb:1"}, options...)
	job := s.Must("", victim, append(args, "--wrap", "cuda-process --exclusive --memory 1234 --seconds 3600")...)
	s.Running(job)
	s.Within("the agent shows the memory of the job", func() bool {
		return strings.Contains(s.Try("n1", "caelum", "status", "--json"), `"peak_mib": 1`)
	})
	return job
}

// TestSocketPrivate checks that the agent hides other users' jobs if slurmctld hides them, and that a job's owner and
// root see all data about it.
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

// TestSocketUse checks a site where slurmctld shows all jobs. caelum status must show a job to other users, but not how
// much memory it uses.
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

// flood calls the agent's socket from 12 threads for 10 s. It prints how many requests the agent answered and refused,
// and how many seconds this took. A loop of caelum commands would be too slow on a busy machine.
const flood = `
import http.client, socket, threading, time
counts = {200: 0, 429: 0}
lock = threading.Lock()
start = time.monotonic()

def call():
    while time.monotonic() < start + 10:
        agent = http.client.HTTPConnection("agent")
        agent.sock = socket.socket(socket.AF_UNIX)
        try:
            agent.sock.connect("/run/caelum/caelumd.sock")
            agent.request("GET", "/v1/status")
            status = agent.getresponse().status
        except (OSError, http.client.HTTPException):
            continue  # the agent may close the connection of a refused request early
        finally:
            agent.close()
        with lock:
            counts[status] += 1

threads = [threading.Thread(target=call) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(counts[200], counts[429], time.monotonic() - start)
`

// TestSocketFlood sends requests to the agent as fast as possible. The agent must answer at a limited rate, and other
// users' jobs must still start and end.
func TestSocketFlood(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	type result struct {
		out, stderr string
		err         error
	}
	done := make(chan result)
	go func() {
		var r result
		r.out, r.stderr, r.err = s.ExecNode(t.Context(), "n1", attacker, "python3", "-c", flood)
		done <- r
	}()
	for range 3 {
		job := s.Must("", victim, "sbatch", "--parsable", "--gres=gpu:1,mig:1g.5gb:1",
			"--wrap", "cuda-process --exclusive --seconds 0.1")
		s.Completed(job)
	}
	r := <-done
	var served, refused, seconds float64
	if _, err := fmt.Sscan(r.out, &served, &refused, &seconds); err != nil {
		t.Fatalf("the flood printed %q: %v, %v %s", r.out, err, r.err, r.stderr)
	}
	// The agent answers the first 50 requests immediately, and later requests at a rate of 10 per second.
	if served > 50+10*seconds+1 || refused == 0 {
		t.Errorf("the agent answered %v requests and refused %v requests in %v s", served, refused, seconds)
	}
	t.Logf("the agent answered %v requests and refused %v requests in %v s", served, refused, seconds)
	s.NoneDrained()
	s.NothingLeft()
}
