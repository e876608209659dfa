//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestSetup takes a site with whole GPUs and its own job_submit.lua to the first slice with the commands of
// docs/install.md, and back to the same configuration. The site's job_submit.lua has CRLF line ends and no newline at
// its end.
func TestSetup(t *testing.T) {
	const table = "/etc/caelum/decisions"
	files := []string{"/etc/slurm/slurm.conf", "/etc/slurm/gres.conf", "/etc/slurm/plugstack.conf",
		"/etc/slurm/job_submit.lua"}
	submit, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := clustertest.Start(t, cluster.Options{Stock: true, Nodes: 1, GPUs: 1, JobSubmit: submit +
		"/testdata/site_submit.lua"})
	sum := func() string {
		return s.Must("", "root", "sh", "-c", "stat -c '%n %a %U' \"$@\" && cat \"$@\" | sha256sum", "sh",
			files[0], files[1], files[2], files[3])
	}
	before := sum()
	unit := func(do func(string) error, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := do(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func() {
		t.Helper()
		_, stderr, err := s.Exec(t.Context(), clustertest.User, "sbatch", "--gres=gpu:1", "--wrap", "true")
		if err == nil || !strings.Contains(stderr, "give a time limit") {
			t.Errorf("the site's job_submit.lua did not refuse a job without a time limit: %v %s", err, stderr)
		}
	}
	refused()
	s.Completed(s.Submit("true", "--gres=gpu:1", "-t", "5"))

	// The site installs Caelum.
	s.Must("n1", "root", "sh", "-c", "caelum slurm-config --json > "+s.Dir+"/a100.json")
	s.Must("", "root", "sh", "-c", "caelum setup --diff --nodes n1 --inventory "+s.Dir+"/a100.json --catalogue 1 "+
		"--job-submit "+submit+"/../../job_submit.lua > "+s.Dir+"/caelum.patch")
	s.Must("", "root", "sh", "-c", "patch -p1 -d / < "+s.Dir+"/caelum.patch")
	unit(s.RestartUnit, "slurmctld")
	unit(s.StartUnit, "agent-n1")
	unit(s.RestartUnit, "slurmd-n1")
	refused()
	id := s.Submit("cuda-process --seconds 0.1", "--gres=gpu:1", "--mig=1g.5gb", "-t", "5")
	s.Completed(id)
	job := s.Must("", "root", "scontrol", "show", "job", id)
	if !strings.Contains(job, "mig:1g.5gb") || !strings.Contains(job, "Comment=site") {
		t.Errorf("the job was not changed by both the site's and Caelum's job_submit.lua:\n%s", job)
	}
	s.NothingLeft()

	// The site removes Caelum.
	unit(s.StopUnit, "agent-n1")
	s.Must("", "root", "sh", "-c", "patch -R -p1 -d / < "+s.Dir+"/caelum.patch")
	unit(s.RestartUnit, "slurmctld", "slurmd-n1")
	if after := sum(); after != before {
		t.Errorf("after patch -R, the files are\n%s\nwant\n%s", after, before)
	}
	if out := s.Try("", "ls", table); !strings.Contains(out, "No such file") {
		t.Errorf("%s remains: %s", table, out)
	}
	refused()
	s.Completed(s.Submit("true", "--gres=gpu:1", "-t", "5"))
	s.NoneDrained()
}
