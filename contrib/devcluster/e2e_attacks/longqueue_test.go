//go:build e2e

package e2eattacks

import (
	"strconv"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// mostMemory is the most memory, in kB, that an agent or the watcher may use for a queue that a user has filled.
const mostMemory = 100 << 10

// fill submits nine arrays of 1,000 held tasks, each of which depends on every task of another array, as the attacker.
// `squeue -r` prints the dependencies, about 30 kB, for each of the 9,000 tasks.
const fill = `
	first=$(sbatch --parsable -H -o /dev/null -a 1-1000 --wrap true)
	on=$(seq -f "$first"_%g -s : 1 1000)
	name=$(head -c 1000 /dev/zero | tr '\0' j)
	for i in 1 2 3 4 5 6 7 8 9; do
		sbatch --parsable -H -o /dev/null -a 1-1000 -d "afterany:$on" -J "$name" --comment "$name" --wrap true
	done`

// name lets an array exclude or request a list of nodes. squeue would expand it for each of the 9,000 tasks; with 64 kB
// for 1,000 tasks, it took 17 s of CPU time, and no agent could read the queue.
const name = `
	list="n[$(yes 1-1 | head -16370 | paste -sd,)]"
	for job in $(squeue -h -o %F | sort -u); do
		scontrol update jobid=$job ExcNodeList="$list" 2>&1 || scontrol update jobid=$job ReqNodeList="$list" 2>&1
	done`

// TestLongQueue checks that a queue that a user fills with large jobs does not use up the memory of the agents and of
// the watcher, and that other users' jobs continue to start.
func TestLongQueue(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: "../e2e_faults/testdata/watched.yaml",
		Conf: []string{"MaxJobCount=20000"}})
	s.Must("", attacker, "bash", "-e", "-c", fill)
	s.Must("", attacker, "bash", "-c", name+"; true")
	if lists := s.Must("", "root", "squeue", "-h", "-t", "all", "-O", "reqnodes:80"); strings.Contains(lists, "n1") {
		t.Error("a user's list of 64 kB was accepted")
	}
	if lists := s.Must("", "root", "squeue", "-h", "-t", "all", "-o", "%.80x"); strings.Contains(lists, "n1") {
		t.Error("a user's list of 64 kB was accepted")
	}
	for range 3 {
		s.Completed(s.Must("", victim, "sbatch", "--parsable", "--gres=gpu:1,mig:1g.5gb:1", "--wrap",
			"cuda-process --exclusive --seconds 0.1"))
	}
	for _, unit := range []string{"agent-n1", "watcher"} {
		text := s.Must("", "root", "sh", "-c",
			`awk '/^VmHWM/ {print $2}' /proc/$(cat /run/devcluster/units/`+unit+`.pid)/status`)
		if kB, err := strconv.Atoi(text); err != nil || kB > mostMemory {
			t.Errorf("%s used %s kB of memory (%v)", unit, text, err)
		}
		t.Logf("%s: at most %s kB", unit, text)
	}
	s.Must("", "root", "scancel", "-u", attacker)
	s.NoneDrained()
}
