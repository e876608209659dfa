//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// adaptive starts a cluster with one GPU, whose agent may give a job a larger slice than it requests. According to the
// decision table, each script needs 1g.5gb and runs for ten minutes, and its run time is almost inversely proportional
// to the number of compute slices.
func adaptive(t *testing.T, scripts ...string) *site {
	t.Helper()
	script, err := cluster.Script()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(filepath.Dir(script), "caelum.yaml")
	s := quietly(t, start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: config, Conf: conf[:3]}))
	lines := "default 7g.40gb\n"
	for _, one := range scripts {
		lines += fmt.Sprintf("user %d:%s 1g.5gb 600 95\n", uid, fingerprint(one))
	}
	if err := s.writeTable(lines); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLargerSlice checks a job whose line in the decision table names 1g.5gb, but which gets the whole idle GPU. Slurm
// shows 1g.5gb, and the run's summary 7g.40gb. After a requeue, the second run gets the whole GPU, too.
func TestLargerSlice(t *testing.T) {
	const first, again = "./task larger", "./task again 1 $((SLURM_RESTART_COUNT ? 0 : 600))"
	s := adaptive(t, first, again)
	id := s.submit(t, first, "--gres=gpu:1")
	s.completed(t, id)
	s.held(t, "larger", "7g.40gb")
	s.tagged(t, id, "caelum:sized=1g.5gb")
	s.accounted(t, id, "gres/mig:1g.5gb=1")
	within(t, "the accounting record contains the larger slice", func() bool {
		return strings.Contains(s.must(t, "", user, "sacct", "-nPX", "-j", id, "-o", "AdminComment"),
			" caelum:run=n1,7g.40gb,")
	})

	id = s.submit(t, again, "--gres=gpu:1", "--requeue")
	s.until(t, id, "the job runs", func(r row) bool { return r.state == "RUNNING" })
	s.must(t, "", user, "scontrol", "requeue", id)
	s.completed(t, id)
	if tasks := s.held(t, "again", "7g.40gb"); tasks[0].restart != "1" {
		t.Errorf("the records of the requeued job are %+v", tasks)
	}
}

// TestNamedProfileStays checks that a job gets the profile that its user named, although the GPU is idle and the
// decision table has a line for the script.
func TestNamedProfileStays(t *testing.T) {
	const script = "./task named-$SLURM_JOB_NAME"
	s := adaptive(t, script)
	for name, options := range map[string][]string{
		"gres":   {"--gres=gpu:1,mig:1g.5gb:1"},
		"option": {"--gres=gpu:1", "--mig=1g.5gb"},
	} {
		id := s.submit(t, script, append(options, "-J", name)...)
		s.completed(t, id)
		s.held(t, "named-"+name, "1g.5gb")
		s.accounted(t, id, "gres/mig:1g.5gb=1")
	}
}

// TestLargerSlicesOfAnArray checks that each task of an array gets a larger slice than the requested profile, and that
// Slurm shows the requested profile for each task. The second task may have to wait for the first one to end.
func TestLargerSlicesOfAnArray(t *testing.T) {
	const script = "./task array"
	s := adaptive(t, script)
	id := s.submit(t, script, "--gres=gpu:1", "--array=1-2")
	s.completed(t, id+"_1", id+"_2")
	all, problems := s.tasks(t, "array")
	if len(all) != 2 || all[0].profile == "1g.5gb" || all[1].profile == "1g.5gb" {
		t.Errorf("the records of the tasks are %+v\n%s", all, problems)
	}
	for _, one := range []string{id + "_1", id + "_2"} {
		s.accounted(t, one, "gres/mig:1g.5gb=1")
	}
}
