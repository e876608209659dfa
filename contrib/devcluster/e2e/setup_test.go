//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestSetup takes a site with whole GPUs and its own job_submit.lua to the first slice with the commands in
// docs/install.md, and back to its old configuration. The site's job_submit.lua has CRLF line endings and no newline at
// its end.
func TestSetup(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := clustertest.Start(t, cluster.Options{Stock: true, Nodes: 1, GPUs: 1, JobSubmit: dir +
		"/testdata/site_submit.lua"})
	before := configuration(s)
	siteRefuses(t, s)
	s.Completed(s.Submit("true", "--gres=gpu:1", "-t", "5"))

	s.Must("n1", "root", "sh", "-c", "caelum slurm-config --json > "+s.Dir+"/a100.json")
	s.Must("", "root", "sh", "-c", "caelum setup --diff --nodes n1 --inventory "+s.Dir+"/a100.json --catalogue 1 "+
		"--job-submit "+dir+"/../../../spank/submit/job_submit.lua > "+s.Dir+"/caelum.patch")
	drained(t, s, func() {
		s.Must("", "root", "sh", "-c", "patch -p1 -d / < "+s.Dir+"/caelum.patch")
		units(t, s.RestartUnit, "slurmctld")
		units(t, s.StartUnit, "agent-n1")
		units(t, s.RestartUnit, "slurmd-n1")
	})
	siteRefuses(t, s)
	id := s.Submit("cuda-process --seconds 0.1", "--gres=gpu:1", "--mig=1g.5gb", "-t", "5")
	s.Completed(id)
	job := s.Must("", "root", "scontrol", "show", "job", id)
	if !strings.Contains(job, "mig:1g.5gb") || !strings.Contains(job, "Comment=site") {
		t.Errorf("the job was not changed by both the site's and Caelum's job_submit.lua:\n%s", job)
	}
	s.NothingLeft()

	drained(t, s, func() {
		units(t, s.StopUnit, "agent-n1")
		s.Must("", "root", "sh", "-c", "patch -R -p1 -d / < "+s.Dir+"/caelum.patch")
		units(t, s.RestartUnit, "slurmctld", "slurmd-n1")
	})
	if after := configuration(s); after != before {
		t.Errorf("after patch -R, the files are\n%s\nwant\n%s", after, before)
	}
	siteRefuses(t, s)
	s.Completed(s.Submit("true", "--gres=gpu:1", "-t", "5"))
	s.NoneDrained()
}

// configuration returns the names, modes, owners and checksums of the site's files.
func configuration(s *clustertest.Site) string {
	return s.Must("", "root", "sh", "-c", "find /etc/slurm /etc/caelum -type f -printf '%p %m %u\\n' -exec sha256sum "+
		"{} ';' | sort")
}

// siteRefuses checks that the site's job_submit.lua refuses a job without a time limit.
func siteRefuses(t *testing.T, s *clustertest.Site) {
	t.Helper()
	_, stderr, err := s.Exec(t.Context(), clustertest.User, "sbatch", "--gres=gpu:1", "--wrap", "true")
	if err == nil || !strings.Contains(stderr, "give a time limit") {
		t.Errorf("the site's job_submit.lua did not refuse a job without a time limit: %v %s", err, stderr)
	}
}

// drained changes the configuration while n1 is drained, because a node whose slurmd reports fewer GPUs than slurm.conf
// would drain. It resumes n1 after slurmd has registered with the new configuration, because slurmctld refuses to
// resume a node in the states UNKNOWN+DRAIN and IDLE+DRAIN+INVALID_REG. slurmctld sets INVALID_REG if slurmd registers
// after slurmctld's restart but before its own.
func drained(t *testing.T, s *clustertest.Site, change func()) {
	t.Helper()
	s.Must("", "root", "scontrol", "update", "nodename=n1", "state=drain", "reason=caelum")
	change()
	s.Within("slurmd has registered", func() bool {
		node := s.Must("", "root", "scontrol", "show", "node", "n1")
		return strings.Contains(node, "State=IDLE+DRAIN") && !strings.Contains(node, "+INVALID_REG")
	})
	s.Must("", "root", "scontrol", "update", "nodename=n1", "state=resume")
	// From 24.11, slurmctld drains a node whose slurmd has registered other GRES before its restart.
	// sinfo lists a node once for each of its partitions, and 26.05 refuses to resume a node twice.
	nodes := strings.Fields(s.Must("", "root", "sinfo", "-hNo", "%N", "-t", "drained,draining"))
	for _, node := range slices.Compact(nodes) {
		s.Must("", "root", "scontrol", "update", "nodename="+node, "state=resume")
	}
}

func units(t *testing.T, do func(string) error, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := do(name); err != nil {
			t.Fatal(err)
		}
	}
}
