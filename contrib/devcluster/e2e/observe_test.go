//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/controller/repo"
)

// TestObserve runs jobs on a cluster without Caelum while caelumd observe runs. The recorded peaks must be those of the
// jobs, and a script must get its tight profile after an import.
func TestObserve(t *testing.T) {
	for _, cgroup := range []string{"", "v1"} {
		t.Run("cgroup"+cgroup, func(t *testing.T) { observe(t, cgroup) })
	}
}

func observe(t *testing.T, cgroup string) {
	s := clustertest.Start(t, cluster.Options{Stock: true, Nodes: 1, GPUs: 2, JobSubmit: "none", NVLink: "0,1",
		Cgroup: cgroup})
	const file = "/var/lib/caelum/observed.jsonl"
	s.Must("n1", "root", "sh", "-c", "setsid caelumd observe >/run/observe.log 2>&1 & echo $! >/run/observe.pid")
	s.Within("observe has opened its file", func() bool { return s.Try("n1", "stat", "-c", "%a", file) == "600" })

	const script = "#!/bin/bash\n#SBATCH -t 5\ncuda-process --memory 3000 --seconds 10" // without a newline at the end
	s.Write("train.sh", script)
	train := s.Must("", clustertest.User, "sbatch", "--parsable", "--gres=gpu:1", s.Home()+"/train.sh")
	two := s.Submit("cuda-process --memory 9000 --seconds 10 & cuda-process --memory 1000 --seconds 10; wait; exit 3",
		"--gpus=1", "-t", "5", "-J", "evil\x1b[2J\n{\"job\":1}")
	both := s.Submit("cuda-process --memory 12000 --seconds 5", "--gpus=2", "-t", "5")
	var lines map[string]repo.Observed
	s.Within("observe has recorded three jobs", func() bool {
		lines = map[string]repo.Observed{}
		for line := range strings.Lines(s.Try("n1", "cat", file)) {
			var n repo.Observed
			if err := json.Unmarshal([]byte(line), &n); err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			lines[fmt.Sprint(n.Job)] = n
		}
		return len(lines) == 3
	})
	for id, want := range map[string]struct {
		peak  float64
		gpus  int
		state string
	}{train: {3000, 1, "COMPLETED"}, two: {10000, 1, "FAILED"}, both: {12000, 2, "COMPLETED"}} {
		n := lines[id]
		if n.PeakMiB != want.peak || n.Slices != want.gpus || len(n.Devices) != want.gpus || n.State != want.state ||
			n.User != clustertest.User || n.GPUType != "a100" || n.Profile != "7g.40gb" || n.Key == "" {
			t.Errorf("job %s: %+v, want %+v", id, n, want)
		}
	}

	readers(t, s, file)
	s.Must("n1", "root", "sh", "-c", "kill $(cat /run/observe.pid)")
	s.Within("observe has ended", func() bool {
		return s.Try("n1", "sh", "-c", "kill -0 $(cat /run/observe.pid) && echo on") !=
			"on"
	})
	if log := s.Try("n1", "cat", "/run/observe.log"); log != "" {
		t.Errorf("observe logged\n%s", log)
	}
}

// readers checks what the commands make of the file.
func readers(t *testing.T, s *clustertest.Site, file string) {
	t.Helper()
	command := func(args ...string) string {
		t.Helper()
		return s.Must("n1", "root", append([]string{"caelum"}, args...)...)
	}
	out := command("simulate", "--observed", file, "--gpus", "A100-40GB:2")
	if !strings.Contains(out, "jobs by profile: 1g.5gb 1, 3g.20gb 1, 7g.40gb 1\n") {
		t.Errorf("simulate printed\n%s", out)
	}
	for _, want := range []string{"3 runs, 3 of them new", "3 runs, 0 of them new"} {
		if got := command("repo", "import", file); got != want {
			t.Errorf("import printed %q, want %q", got, want)
		}
	}
	// The key is the one that job_submit.lua would compute for the script.
	out = command("predict", "--script", s.Home()+"/train.sh", "--user", clustertest.User, "--account", "research",
		"--board", "A100-40GB", "--json")
	if !strings.Contains(out, `"1g.5gb"`) || !strings.Contains(out, `"level": "key"`) {
		t.Errorf("predict printed\n%s", out)
	}
}
