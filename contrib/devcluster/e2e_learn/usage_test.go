//go:build e2e

package e2elearn

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// TestUsage compares the GPU-hours of `caelum usage`, which reads only slurmdbd, with the leases in the agents' logs.
// The jobs are a mix: slices of several sizes, full GPUs, several slices, two nodes, arrays and --exclusive jobs, some
// of which fail, are cancelled or are requeued once. The USAGE_JOBS environment variable sets the number of jobs, and
// USAGE_SEED another mix. Because summaries contain whole seconds, the two figures may differ by a second for each
// lease.
func TestUsage(t *testing.T) {
	jobs, seed := variable(t, "USAGE_JOBS", 16), variable(t, "USAGE_SEED", 2)
	s := start(t, "poll_interval: 1s\nsample_interval: 200ms\nlog_format: json\nlog_level: debug\n"+
		"whole_gpus: auto\n",
		cluster.Options{Nodes: 2, GPUs: 2, Model: "H100-80GB", Conf: []string{"AuthInfo=cred_expire=5"}})
	rng := rand.New(rand.NewPCG(uint64(seed), 20))
	for range jobs {
		s.must("user1", s.mixed(rng)...)
	}
	for end := time.Now().Add(time.Duration(60+8*jobs) * time.Second); ; time.Sleep(time.Second) {
		if s.must("root", "squeue", "-h") == "" {
			break
		}
		if time.Now().After(end) {
			s.Fatalf("jobs still run or wait:\n%s", s.must("root", "squeue"))
		}
	}
	want := s.leased()
	for end := time.Now().Add(time.Minute); s.summaries() < want.leases && time.Now().Before(end); {
		time.Sleep(time.Second)
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
	t.Logf("%d jobs with seed %d, %d runs with %d leases and %d summaries: %.1f GPU-seconds in slurmdbd, %.1f in the "+
		"agents' logs (%+.2f%%)", jobs, seed, report.Total.Runs, want.leases, s.summaries(), got, want.seconds,
		100*(got/want.seconds-1))
	if report.Total.Runs != want.runs || math.Abs(got-want.seconds) > want.gpus {
		t.Errorf("want %d runs, and a difference of at most %.1f GPU-seconds", want.runs, want.gpus)
		t.Log(s.must("root", "sacct", "-a", "-X", "-D", "-n", "-P", "-o",
			"JobIDRaw,State,Start,End,ElapsedRaw,ReqTRES%300,AllocTRES%300,AdminComment%9999"))
	}
	s.saved(want, report.Total.GPUHours)
	s.reports(got)
}

// saved checks `caelum usage --saved` with the leases in the agents' logs, and with the GPU-hours that `caelum usage`
// prints. No job runs out of memory, so every slice counts as one whole GPU.
func (s site) saved(want leases, hours float64) {
	s.Helper()
	var saved struct {
		Total struct {
			Jobs         int
			Whole, Slice float64
		}
		Waits struct {
			Jobs, GPUs int
			LeftOut    []struct{ Jobs int } `json:"left_out"` // --exclusive jobs
			Policies   []struct{ Policy, Never string }
		}
	}
	path := filepath.Join(s.TempDir(), "saved.html")
	text := s.must("root", "caelum", "usage", "--saved", "--json", "--html", path)
	text = strings.NewReplacer(`"whole_gpu_hours"`, `"whole"`, `"slice_gpu_hours"`, `"slice"`).Replace(text)
	if err := json.Unmarshal([]byte(text), &saved); err != nil {
		s.Fatal(err)
	}
	whole := 3600 * saved.Total.Whole
	s.Logf("whole GPUs: %.1f GPU-seconds in slurmdbd, %.1f in the agents' logs", whole, want.whole)
	if math.Abs(whole-want.whole) > want.slices || math.Abs(saved.Total.Slice-hours) > 1e-9 {
		s.Errorf("%+v; want a difference of at most %.0f GPU-seconds, and %v GPU-hours of slices", saved.Total,
			want.slices, hours)
	}
	w := saved.Waits
	replayed := w.Jobs
	for _, l := range w.LeftOut {
		replayed += l.Jobs
	}
	if w.GPUs != 4 || w.Jobs == 0 || replayed < saved.Total.Jobs || len(w.Policies) != 3 {
		s.Errorf("the simulation does not contain all jobs on 4 GPUs: %s", text)
	}
	if page, err := os.ReadFile(path); err != nil || !strings.Contains(string(page), "user1: ") {
		s.Errorf("the page does not contain the user: %v\n%s", err, page)
	}
}

// summaries returns the number of different summaries in slurmdbd. Two records of a requeued job can contain the same
// summary.
func (s site) summaries() int {
	s.Helper()
	all := map[string]bool{}
	for line := range strings.Lines(s.must("root", "sacct", "-a", "-X", "-D", "-n", "-P", "-o",
		"JobIDRaw,AdminComment%9999")) {
		job, text, _ := strings.Cut(line, "|")
		for word := range strings.FieldsSeq(text) {
			if strings.HasPrefix(word, "caelum:run=") {
				all[job+word] = true
			}
		}
	}
	return len(all)
}

// variable returns the number in an environment variable, or other if the variable is not set.
func variable(t *testing.T, name string, other int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return other
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// mixed returns the command that submits a random job.
func (s site) mixed(rng *rand.Rand) []string {
	seconds := strconv.Itoa(4 + rng.IntN(9))
	scripts := []string{
		"sleep " + seconds, "sleep " + seconds, "sleep " + seconds, "sleep " + seconds + "; exit 3",
		"sleep " + seconds + "; scancel $SLURM_JOB_ID; sleep 60",
		"sleep " + seconds + "; [ $SLURM_RESTART_COUNT ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }",
	}
	kinds := [][]string{
		{"--gres=gpu:1", "--mig=1g.10gb"}, {"--gres=gpu:1", "--mig=2g.20gb"}, {"--gres=gpu:1", "--mig=3g.40gb"},
		{"--gres=gpu:1", "--mig-mem=18G"}, {"--gres=gpu:2", "--mig=1g.10gb"}, {"--gres=gpu:1", "--mig=1g.10gb", "-N2"},
		{"--gres=gpu:1", "--mig=1g.20gb", "--array=0-1"}, {"--gres=gpu:1,mig:2g.20gb:1", "--exclusive"},
		{"--gres=gpu:1"}, {"--gres=gpu:1", "--mig=off"}, {"--gres=gpu:2"}, {"-n1"}, {"-n1", "--exclusive"},
	}
	command := []string{
		"sbatch", "--quiet", "-o", "/dev/null", "--requeue", "--wrap=" + scripts[rng.IntN(len(scripts))],
	}
	return append(command, kinds[rng.IntN(len(kinds))]...)
}

// leases is a sum over all leases in the agents' logs.
type leases struct {
	seconds, gpus float64 // the GPU-seconds, and the shares of a GPU that the leases occupied
	whole, slices float64 // the same figures for whole GPUs instead of slices
	leases, runs  int     // a run on two nodes has two leases
}

// leased returns the sum over all leases. As in the ledger, a lease begins with the prolog's call. The shares are
// written here a second time, so that the test does not use the code that it tests.
func (s site) leased() (sum leases) {
	s.Helper()
	eighths := map[string]float64{
		"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8, "full": 8,
	}
	runs := map[[2]int]bool{}
	for _, node := range []string{"n1", "n2"} {
		log, err := s.Log("agent-" + node)
		if err != nil {
			s.Fatal(err)
		}
		held, slices, since := map[int]float64{}, map[int]float64{}, map[int]time.Time{}
		for line := range strings.Lines(log) {
			var event struct {
				Msg          string
				Time         time.Time
				Job, Restart int
				MS           float64
			}
			if json.Unmarshal([]byte(line), &event) != nil {
				continue
			}
			var profile string
			var at int
			n, _ := fmt.Sscanf(event.Msg, "leased %s at %d", &profile, &at)
			switch {
			case n == 2:
				if eighths[profile] == 0 {
					s.Errorf("the share of %s is unknown", profile)
				}
				held[event.Job] += eighths[profile] / 8
				slices[event.Job]++
				runs[[2]int{event.Job, event.Restart}] = true
			case event.Msg == "prolog served":
				since[event.Job] = event.Time.Add(-time.Duration(event.MS * float64(time.Millisecond)))
			case event.Msg == "released" && held[event.Job] > 0:
				seconds := event.Time.Sub(since[event.Job]).Seconds()
				sum.seconds, sum.gpus = sum.seconds+held[event.Job]*seconds, sum.gpus+held[event.Job]
				sum.whole, sum.slices = sum.whole+slices[event.Job]*seconds, sum.slices+slices[event.Job]
				sum.leases++
				delete(held, event.Job)
				delete(slices, event.Job)
			}
		}
		if len(held) > 0 {
			s.Errorf("%s has not released the slices of the jobs %v", node, held)
		}
	}
	sum.runs = len(runs)
	return sum
}
