//go:build e2e

package e2ewhole

import (
	"fmt"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// fractionSpellings are ways to request one GPU, with the profile that the job gets. No earlier runs are known.
var fractionSpellings = []struct{ options, profile string }{
	{"--gres=gpu:l40s:1 --mig=1f.11gb", "1f.11gb"},
	{"--gpus=1 --mig=1F.11GB", "1f.11gb"},
	{"--gpus=l40s:1 --mig-mem=11G", "1f.11gb"},
	{"--gpus-per-node=l40s:1 --mig-mem=12G", "2f.22gb"},
	{"--gres=gpu:l40s:1 --mig-mem=30G", "full"},
	{"--gres=gpu:1,mig:2f.22gb:1", "2f.22gb"},
	{"--gres=gpu:l40s_1f.11gb:1", "1f.11gb"},
	{"--gpus=l40s_1f.11gb", "1f.11gb"},
	{"--gpus-per-task=2f.22gb:1 -n1", "2f.22gb"},
	{"--gres=gpu:l40s:1 --mig=1f.11gb --cpus-per-gpu=1 --mem-per-gpu=100M", "1f.11gb"},
	{"--gres=gpu:l40s:1", "full"},
	{"--gres=gpu:l40s:1 --mig=off", "full"},
}

// batchSpellings are ways that only sbatch accepts, with lines of the decision table: shards, and an alias.
var batchSpellings = []struct{ options, profile string }{
	{"--gres=shard:2", "1f.11gb"},
	{"--gres=shard", "1f.11gb"},
	{"--gres=shard:3", "2f.22gb"},
	{"--gres=shard:l40s:8", "full"},
	{"--gres=gpu:l40s.4:1", "1f.11gb"},
	{"--gpus=l40s.4:1", "1f.11gb"},
	{"--gpus-per-task=l40s.4:1 -n1", "1f.11gb"},
}

// TestFractionSpellings requests fractions in several ways on a partition that also has GPUs with MIG (n1). Each job
// sees one whole device, the GPU of its fraction, and slurmctld counts the profile.
func TestFractionSpellings(t *testing.T) {
	s := start(t, cluster.Options{
		Nodes: 2, GPUs: 2, Model: "A100-40GB,L40S-48GB", Cgroup: "v2", MemoryLimits: "misc",
		AgentConfig: "testdata/fractions.yaml",
	})
	s.shardsAndAliases()
	for i, c := range fractionSpellings {
		for mode, command := range map[string]string{
			"sbatch": inBatch,
			"srun":   "srun %s sh -c 'echo $SLURM_JOB_ID; ./devices >%s'",
			"salloc": "salloc %s srun sh -c 'echo $SLURM_JOB_ID; ./devices >%s'",
		} {
			if mode == "srun" && strings.HasPrefix(c.options, "--gpus=l40s_") && s.Release().ReplacesTypes() {
				continue // not possible with any profile (docs/static-mig.md)
			}
			s.spelling(fmt.Sprintf("%s-%d.out", mode, i), command, c.options, c.profile)
		}
	}
	for _, options := range []string{"--gres=mig:1f.11gb:2", "--gpus=2 --mig=1f.11gb", "--gres=gpu:l40s_1f.11gb:2"} {
		s.Must("", clustertest.User, "bash", "-c", "cd "+s.Home()+" && sbatch "+options+
			" --wrap true 2>&1 | grep 'only one fraction of a GPU on each node'")
	}
	id := s.Submit("./devices >two.out", "--gpus=l40s:2", "--mig-mem=8G")
	if visible, opened := s.output("two.out"); len(visible) != 2 || len(opened) != 2 {
		t.Errorf("two GPUs: sees %v and opened %v", visible, opened)
	}
	s.counted(id, "gres/mig:full=2")
	s.NoneDrained()
	s.NothingLeft()
}

// inBatch is the command of a batch job, with its options and its output file.
const inBatch = "sbatch -W --parsable -o /dev/null %s --wrap 'srun ./devices >%s'"

// spelling runs a command with options for a fraction with a profile. The output file of its job has a name.
func (s *site) spelling(name, command, options, profile string) {
	s.t.Helper()
	out := s.Must("", clustertest.User, "bash", "-c", "cd "+s.Home()+" && "+fmt.Sprintf(command, options, name))
	visible, opened := s.output(name)
	if len(visible) != 1 || !strings.HasPrefix(visible[0], "GPU-") || strings.Contains(visible[0], "/") ||
		len(opened) != 1 {
		s.t.Errorf("%s %s: sees %v and opened %v", name, options, visible, opened)
	}
	s.counted(strings.Fields(out)[0], "gres/mig:"+profile+"=1")
}

// shardsAndAliases adds shard and alias lines to the decision table. job_submit.lua replaces these requests of sbatch,
// and refuses those of srun and salloc. The programs themselves refuse shards if GresTypes does not contain them.
func (s *site) shardsAndAliases() {
	s.t.Helper()
	s.Must("", "root", "sed", "-i", "s/^GresTypes=gpu.*/&,shard/", "/etc/slurm/slurm.conf")
	for _, unit := range []string{"slurmctld", "slurmd-n1", "slurmd-n2"} {
		if err := s.RestartUnit(unit); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, line := range []string{
		"shard 2 1f.11gb", "shard 4 2f.22gb", "shard l40s:8 full", "alias l40s.4 1f.11gb",
	} {
		s.Must("", "root", append([]string{"caelum", "decisions", "set"}, strings.Fields(line)...)...)
	}
	for i, c := range batchSpellings {
		s.spelling(fmt.Sprintf("batch-%d.out", i), inBatch, c.options, c.profile)
		for _, command := range []string{"srun", "salloc"} {
			s.Must("", clustertest.User, "bash", "-c",
				command+" "+c.options+" true 2>&1 | grep 'write --gpus=1 --mig="+c.profile+"'")
		}
	}
	s.Must("", clustertest.User, "bash", "-c", "cd "+s.Home()+" && sbatch --gres=shard:5 --wrap true 2>&1 | "+
		"grep 'at most 4 shards without a type'")
}
