//go:build e2e

package e2e_forms

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

var (
	sample = flag.Int("sample", 300, "number of random combinations to submit; 0: all")
	seed   = flag.Uint64("seed", 1, "seed of the sample")
)

// conf lets both clusters start jobs quickly.
var conf = []string{
	"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min,bf_interval=1",
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// combinations returns the sets of options to submit.
func combinations(t *testing.T) (sets []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range lines(t, "gpus") {
		for _, n := range lines(t, "tasks") {
			for _, r := range lines(t, "resources") {
				for _, o := range lines(t, "others") {
					set := strings.Join(strings.Fields(strings.Join([]string{g, n, r, o}, " ")), " ")
					if !seen[set] {
						seen[set], sets = true, append(sets, set)
					}
				}
			}
		}
	}
	if *sample > 0 {
		rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(sets), func(i, k int) { sets[i], sets[k] = sets[k], sets[i] })
		sets = sets[:*sample]
	}
	return sets
}

// difference returns the documented reason why the clusters differ for these options in the given way ("accepts",
// "refuses" or "gets"), or "".
func difference(t *testing.T, way, options string) string {
	t.Helper()
	for _, line := range lines(t, "differences") {
		of, rest, _ := strings.Cut(line, "\t")
		pattern, reason, ok := strings.Cut(rest, "\t")
		if ok && of == way && regexp.MustCompile(pattern).MatchString(options) {
			return reason
		}
	}
	return ""
}

// agree reports whether both clusters accept or refuse a request, or differ in a documented way, and returns the reason
// of the documented difference.
func agree(t *testing.T, request, withCaelum, stock string) (reason string, ok bool) {
	t.Helper()
	got := withCaelum == "accepted"
	if got == (stock == "accepted") {
		return "", true
	}
	reason = difference(t, map[bool]string{true: "accepts", false: "refuses"}[got], request)
	return reason, reason != ""
}

// start starts a cluster with Caelum and a stock cluster.
func start(t *testing.T) (clusters [2]*cluster.Cluster) {
	t.Helper()
	for k := range clusters {
		o := cluster.Options{Nodes: 2, GPUs: 2, Conf: conf, AgentConfig: "testdata/caelum.yaml"}
		if o.Stock = k == 1; o.Stock {
			o.JobSubmit = "testdata/empty.lua"
		}
		c, err := cluster.Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
		clusters[k] = c
	}
	return clusters
}

// on runs a shell script as a user on a cluster, with one set of options per line of stdin, and returns the lines that
// it prints.
func on(t *testing.T, c *cluster.Cluster, script string, sets []string) []string {
	t.Helper()
	cmd := c.Command(context.Background(), "", "user1", "bash", "-c", script)
	cmd.Stdin = strings.NewReader(strings.Join(sets, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	out := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(out) != len(sets) {
		t.Errorf("%d lines for %d sets of options", len(out), len(sets))
		out = make([]string, len(sets))
	}
	return out
}

// both runs a shell script on both clusters.
func both(t *testing.T, clusters [2]*cluster.Cluster, script string, sets []string) (out [2][]string) {
	t.Helper()
	var wait sync.WaitGroup
	for k, c := range clusters {
		wait.Go(func() { out[k] = on(t, c, script, sets) })
	}
	wait.Wait()
	return out
}

// submits prints "accepted" or the error for each set of options. The jobs begin later, so that none of them runs.
const submits = `while read -r options; do
	if text=$(sbatch --begin=now+1hour -o /dev/null $options --wrap true 2>&1 </dev/null); then echo accepted; else
	echo "$text" | tail -1; fi; done; scancel -u user1`

// runs prints what the job of each set of options gets: nodes, tasks, CPUs, memory, GPUs per node and devices per task.
// It does not print the name of a single node: a job may get the other node while the epilog of the last job runs.
const runs = `while read -r options; do
	rm -f out; timeout 300 sbatch -W -o out $options --wrap '
		echo N=$SLURM_NNODES tasks=$SLURM_TASKS_PER_NODE ntasks=$SLURM_NTASKS cpus=$SLURM_JOB_CPUS_PER_NODE \
			per_gpu=$SLURM_CPUS_PER_GPU,$SLURM_MEM_PER_GPU gpus=$SLURM_GPUS,$SLURM_GPUS_PER_TASK,$SLURM_GPUS_ON_NODE
		scontrol -d show job $SLURM_JOB_ID | grep -oE "NumCPUs=[0-9]+|[^ ]* GRES=.*" |
			sed "s/([^)]*)//g; s/,mig:[^ ]*//; s/mig:[^ ]*//; s/CPU_IDs=[^ ]*//"
		srun bash -c "echo \$SLURMD_NODENAME \$(tr , \\\\n <<<\$CUDA_VISIBLE_DEVICES | wc -l)" |
			if [ $SLURM_NNODES = 1 ]; then sed "s/^n[12] //"; else sort; fi
		' >sbatch.log 2>&1 </dev/null || tail -1 sbatch.log >out
	tr '\n' ' ' <out; echo; done`

// TestForms submits the combinations to both clusters, which must accept and refuse the same ones.
func TestForms(t *testing.T) {
	clusters := start(t)
	sets := combinations(t)
	out := both(t, clusters, submits, sets)
	accepted, differ := 0, map[string]int{}
	for k, set := range sets {
		if out[1][k] == "accepted" {
			accepted++
		}
		reason, ok := agree(t, set, out[0][k], out[1][k])
		if !ok {
			t.Errorf("%s: with Caelum %q, without it %q", set, out[0][k], out[1][k])
		} else if reason != "" {
			differ[reason]++
		}
	}
	t.Logf("%d combinations, %d of which stock Slurm accepts; documented differences: %v", len(sets), accepted, differ)

	t.Run("run", func(t *testing.T) {
		sets := lines(t, "run")
		out := both(t, clusters, runs, sets)
		for k, set := range sets {
			if out[0][k] != out[1][k] && difference(t, "gets", set) == "" {
				t.Errorf("%s\n   with Caelum %s\n   without it  %s", set, out[0][k], out[1][k])
			}
		}
	})
}

// limits has jobs that need more than the partitions have, and similar jobs that do not.
var limits = []string{
	"-N2", "-N3", "-N1-5", "-N3 -n3", "-N5", "-n128", "-n130", "-n300", "-N3 --exclusive", "-N2 -x n2", "-x n[1-2]",
	"-N3 -w n1", "--mem=256000M -N2", "-p gpu,plain -N3", "-N3 --gres=gpu:1", "-N2 --gres=gpu:1", "-N5 --gpus=5",
	"-N3 --gres=gpu:1 -w n1", "--gpus=5", "--gres=gpu:1 -n200",
}

// TestLimits checks that the catalogue nodes do not show: with each value of EnforcePartLimits, both clusters accept
// and refuse the same jobs with and without GPUs, and jobs that need more than there is wait for the same reasons and
// do not block other jobs.
func TestLimits(t *testing.T) {
	clusters := start(t)
	for _, enforce := range []string{"NO", "ANY", "ALL"} {
		for _, c := range clusters {
			do(t, c, "sh", "-c", "echo EnforcePartLimits="+enforce+" >>/etc/slurm/slurm.conf; scontrol reconfigure")
		}
		out := both(t, clusters, submits, limits)
		for k, set := range limits {
			if (out[0][k] == "accepted") != (out[1][k] == "accepted") {
				t.Errorf("EnforcePartLimits=%s %s: with Caelum %q, without it %q", enforce, set, out[0][k], out[1][k])
			}
		}
		if enforce != "NO" {
			continue
		}
		out = both(t, clusters, waits, []string{"-N3", "-N3 --gres=gpu:1", "-n300"})
		if !slices.Equal(out[0], out[1]) {
			t.Errorf("waiting jobs: with Caelum %q, without it %q", out[0], out[1])
		}
	}
}

// waits prints the reason for which each job waits, and whether a later job completes.
const waits = `while read -r options; do
	id=$(sbatch --parsable -o /dev/null $options --wrap true </dev/null) && sleep 2
	reason=$(squeue -h -j "$id" -o %r)
	timeout 60 sbatch -W -o /dev/null --wrap true >/dev/null </dev/null; echo "$reason $?"; scancel -u user1; done`
