//go:build e2e

package e2elearn

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// TestUsage compares the GPU-hours of `caelum usage`, which reads only slurmdbd, with the leases in the agents' logs,
// for a mix of jobs: arrays, jobs with named profiles, several slices, two nodes, and --exclusive jobs. The environment
// variable USAGE_JOBS sets the number of jobs. A summary contains whole seconds, and begins when the prolog requests
// the slice, so the two figures may differ by a second for each run.
func TestUsage(t *testing.T) {
	jobs := 20
	if text := os.Getenv("USAGE_JOBS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		jobs = n
	}
	s := start(t, "poll_interval: 1s\nsample_interval: 200ms\nlog_format: json\n", cluster.Options{Nodes: 2, GPUs: 2})
	rng := rand.New(rand.NewPCG(1, 20))
	for range jobs {
		s.must("user1", s.mixed(rng)...)
	}
	for end := time.Now().Add(time.Duration(30+8*jobs) * time.Second); ; time.Sleep(time.Second) {
		if s.must("root", "squeue", "-h") == "" {
			break
		}
		if time.Now().After(end) {
			s.Fatalf("jobs still run or wait:\n%s", s.must("root", "squeue"))
		}
	}
	want, gpus, leases := s.leased()
	missing := "sacct -a -X -D -n -P -o AllocTRES%999,AdminComment%999 | grep gres/mig: | grep -vc caelum:run= || true"
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if s.must("root", "sh", "-c", missing) == "0\n" {
			break // each record of a run with slices contains its summary
		}
	}
	var report struct {
		Total struct {
			Runs     int     `json:"runs"`
			GPUHours float64 `json:"gpu_hours"`
		} `json:"total"`
	}
	if err := json.Unmarshal([]byte(s.must("root", "caelum", "usage", "--json")), &report); err != nil {
		t.Fatal(err)
	}
	got := 3600 * report.Total.GPUHours
	t.Logf("%d runs: %.1f GPU-seconds in slurmdbd, %.1f in the agents' logs (%+.2f%%)",
		report.Total.Runs, got, want, 100*(got/want-1))
	if report.Total.Runs != leases || math.Abs(got-want) > gpus {
		t.Errorf("want %d runs, and a difference of at most %.1f GPU-seconds", leases, gpus)
		t.Log(s.must("root", "sacct", "-a", "-X", "-D", "-n", "-P", "-o",
			"JobIDRaw,State,Start,End,ElapsedRaw,ReqTRES%300,AllocTRES%300,AdminComment%999"))
	}
}

// mixed returns the command that submits a random job.
func (s site) mixed(rng *rand.Rand) []string {
	seconds := 4 + rng.IntN(9)
	command := []string{"sbatch", "--quiet", "-o", "/dev/null", "--requeue", "--wrap=sleep " + strconv.Itoa(seconds)}
	kinds := [][]string{
		{"--gres=gpu:1", "--mig=1g.5gb"}, {"--gres=gpu:1", "--mig=2g.10gb"}, {"--gres=gpu:1", "--mig=3g.20gb"},
		{"--gres=gpu:1", "--mig-mem=9G"}, {"--gres=gpu:2", "--mig=1g.5gb"}, {"--gres=gpu:1", "--mig=1g.5gb", "-N2"},
		{"--gres=gpu:1", "--mig=1g.10gb", "--array=0-1"}, {"--gres=gpu:1,mig:2g.10gb:1", "--exclusive"},
		{"--gres=gpu:1"}, {"-n1"},
	}
	return append(command, kinds[rng.IntN(len(kinds))]...)
}

// leased returns the sum of the GPU-seconds of all leases in the agents' logs, the sum of the shares of a GPU that the
// leases occupied, and the number of jobs with leases. The shares are written here a second time, so that the test does
// not use the code that it tests.
func (s site) leased() (seconds, gpus float64, jobs int) {
	s.Helper()
	eighths := map[string]float64{"1g.5gb": 1, "1g.10gb": 2, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}
	seen := map[int]bool{}
	for _, node := range []string{"n1", "n2"} {
		log, err := s.Log("agent-" + node)
		if err != nil {
			s.Fatal(err)
		}
		held, since := map[int]float64{}, map[int]time.Time{}
		for line := range strings.Lines(log) {
			var event struct {
				Msg  string    `json:"msg"`
				Time time.Time `json:"time"`
				Job  int       `json:"job"`
			}
			if json.Unmarshal([]byte(line), &event) != nil {
				continue
			}
			var profile string
			var at int
			if n, _ := fmt.Sscanf(event.Msg, "leased %s at %d", &profile, &at); n == 2 {
				held[event.Job] += eighths[profile] / 8
				since[event.Job] = event.Time
				seen[event.Job] = true
			} else if event.Msg == "released" {
				seconds += held[event.Job] * event.Time.Sub(since[event.Job]).Seconds()
				gpus += held[event.Job]
				delete(held, event.Job)
			}
		}
		if len(held) > 0 {
			s.Errorf("%s has not released the slices of the jobs %v", node, held)
		}
	}
	return seconds, gpus, len(seen)
}
