//go:build e2e

package e2ewhole

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestWithoutMIG runs unchanged scripts on a partition with GPUs that support MIG (n1) and GPUs that do not (n2 and
// n3). A job that names a GPU type gets whole GPUs of this type, and a job that names none gets a slice or, if no slice
// is free, a whole GPU with at least as much memory.
func TestWithoutMIG(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 3, GPUs: 2, Model: "A100-40GB,L40S-48GB,V100-32GB", Cgroup: "v2"})
	s.wholeSpellings()
	s.wholeBesideSlices()
	s.NoneDrained()
	s.NothingLeft()
}

// wholeSpellings requests GPUs without MIG in several ways.
func (s *site) wholeSpellings() {
	for _, c := range []struct {
		options []string
		node    string
		gpus    int
	}{
		{[]string{"--gres=gpu:l40s:1"}, "n2", 1},
		{[]string{"--gres=gpu:l40s:2"}, "n2", 2},
		{[]string{"--gpus=v100:2"}, "n3", 2},
		{[]string{"--gpus-per-node=v100:1", "--cpus-per-gpu=1", "--mem-per-gpu=100"}, "n3", 1},
		{[]string{"--gpus-per-task=l40s:1", "-n2"}, "n2", 2},
		{[]string{"--gpus=l40s:1", "--mig-mem=8GB"}, "n2", 1},
		{[]string{"--gres=gpu:1", "-w", "n2"}, "n2", 1},
		{[]string{"--gres=gpu:1", "--mig-mem=20GB", "-w", "n2"}, "n2", 1},
		{[]string{"--gres=gpu:1,mig:full:1", "-w", "n3"}, "n3", 1},
		{[]string{"--gres=gpu:2", "-w", "n3"}, "n3", 2},
	} {
		id := s.Submit("echo node $SLURMD_NODENAME >spelling.out; ./devices >>spelling.out; sleep 1", c.options...)
		s.Completed(id)
		visible, opened := s.output("spelling.out")
		node := s.Must("", "root", "sacct", "-X", "-n", "-P", "-j", id, "-o", "NodeList")
		if node != c.node || len(visible) != c.gpus || !strings.HasPrefix(visible[0], "GPU-") || len(opened) != c.gpus {
			s.t.Errorf("%v: on %s, sees %v and opened %v", c.options, node, visible, opened)
		}
	}
}

// wholeBesideSlices runs jobs that do not name a GPU type: the first two get the A100s, and the third a whole L40S,
// under the name of the slice.
func (s *site) wholeBesideSlices() {
	t := s.t
	var jobs []string
	for _, name := range []string{"a", "b", "c"} {
		id := s.Submit("./devices >"+name+".out; cuda-process --memory 3000 --seconds 3600 & "+
			"until [ -e end."+name+" ]; do sleep 0.2; done; kill $!", "--gres=gpu:1")
		s.Running(id)
		jobs = append(jobs, id)
	}
	other := s.Slice("n2", jobs[2])
	if other.Profile != "full" || other.AdvertisedAs != "7g.40gb" || other.MemoryMiB != 46068 {
		t.Errorf("the job without room on the A100s has %+v", other)
	}
	s.Must("", stranger, "cp", filepath.Join(s.Home(), "devices"), filepath.Join(s.Home(), "../"+stranger))
	theirs := s.Must("", stranger, "sbatch", "--parsable", "--gres=gpu:l40s:1", "--wrap", "./devices >x.out; sleep 600")
	s.Running(theirs)
	_, mine := s.output("c.out")
	if _, opened := s.output("../" + stranger + "/x.out"); len(opened) != 1 || slices.Equal(opened, mine) {
		t.Errorf("another user's job opened %v beside %v", opened, mine)
	}
	s.Within("the agent measures the job's memory", func() bool {
		return strings.Contains(s.Try("n2", "caelum", "job", jobs[2]), "3000 MiB in use")
	})
	if err := s.RestartUnit("agent-n2"); err != nil {
		t.Fatal(err)
	}
	if after := s.Slice("n2", jobs[2]); after != other {
		t.Errorf("after the agent's restart, the job has %+v, before %+v", after, other)
	}
	status := s.Must("", "root", "caelum", "status", "--all")
	if !strings.Contains(status, "l40s  2/2") || !strings.Contains(status, "v100  0/2") {
		t.Errorf("caelum status --all:\n%s", status)
	}
	if findings := s.Try("n2", "caelum", "doctor"); strings.Contains(findings, "does not support MIG") {
		t.Errorf("caelum doctor:\n%s", findings)
	}
	for _, name := range []string{"a", "b", "c"} {
		s.End(name)
	}
	s.Completed(jobs...)
	s.Must("", stranger, "scancel", theirs)
	s.counted(jobs[2], "gres/mig:7g.40gb=1")
	s.Within("the report shows the peak", func() bool {
		report := s.Try("", "caelum", "report", jobs[2])
		return strings.Contains(report, "a full GPU") && strings.Contains(report, "peak 3000 MiB")
	})
	s.Must("", clustertest.User, "sh", "-c", "cd "+s.Home()+" && ! sbatch --gres=gpu:a100:1 --mig=full --wrap true")
}
