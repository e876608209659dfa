//go:build e2e

package e2efaults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// power is SuspendProgram and ResumeProgram. It stops or starts the agent and slurmd of each node. %[1]s is the
// directory with the program, in which the cluster file contains the cluster's directory, and %[2]s is the directory of
// unit.sh. slurmctld starts the program with blocked signals, which would block the timers in unit.sh.
const power = `#!/bin/bash
exec >>%[1]s/log 2>&1
export PATH=/run/devcluster/build/nvml-emulator:/run/devcluster/build:/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin
if [[ -z ${UNBLOCKED-} ]]; then
    export UNBLOCKED=1
    exec perl -MPOSIX -e 'sigprocmask(SIG_SETMASK, POSIX::SigSet->new); exec {$ARGV[0]} @ARGV' "$0" "$@"
fi
unit() { env -u SLURM_CONF %[2]s/unit.sh "$(<%[1]s/cluster)" "$@"; }
for node in $(scontrol show hostnames "$1"); do
    case $0 in
    *suspend) unit stop "slurmd-$node"; unit stop "agent-$node" ;;
    *resume) [[ -e %[1]s/broken ]] || { unit start "agent-$node"; REBOOTED=yes unit start "slurmd-$node"; } ;;
    esac
    echo "$0 $node"
done
`

// TestPowerSaving suspends an idle node, whose agent and slurmd end. A job that needs a profile that only this node can
// offer must lead to its resume, and the node must be suspended again afterwards. If the node does not come back, its
// offers must be withdrawn. A job that fits on the other node must not resume it.
func TestPowerSaving(t *testing.T) {
	s, dir := startPowerSaving(t)
	node := func() string { return s.Must("", "root", "scontrol", "-d", "show", "node", "n2") }
	is := func(text string) func() bool { return func() bool { return strings.Contains(node(), text) } }
	suspend := func() {
		t.Helper()
		s.Must("", "root", "scontrol", "update", "nodename=n2", "state=power_down")
		s.Within("n2 is suspended", is("State=IDLE+POWERED_DOWN"))
	}
	suspend()
	s.Within("n2 offers no slices", func() bool { return !strings.Contains(node(), "3g.20gb:1") })

	busy := s.Submit("./hold busy", "--gres=mig:4g.20gb:1")
	s.Running(busy)
	s.Completed(s.Submit("sleep 1", "--gres=mig:3g.20gb:1"))
	if !is("State=IDLE+POWERED_DOWN")() {
		t.Errorf("a job that fits on n1 has resumed n2:\n%s", node())
	}

	began := time.Now()
	job := s.Submit("./hold whole", "--gres=mig:7g.40gb:1")
	s.Within("n2 is being resumed", func() bool { return s.Lives(job) == "CONFIGURING" })
	t.Logf("slurmctld allocated n2 %.1f s after the submission", time.Since(began).Seconds())
	s.Within("slurmd has registered", func() bool { return !is("NOT_RESPONDING")() && !is("POWERED_DOWN")() })
	resumed := time.Now()
	s.Running(job)
	if slice := s.Slice("n2", job); slice.Profile != "7g.40gb" {
		t.Errorf("the job has %+v", slice)
	}
	t.Logf("the job had its slice %.1f s after slurmd registered, and %.1f s after the submission",
		time.Since(resumed).Seconds(), time.Since(began).Seconds())
	s.End("whole")
	s.Completed(job)
	suspend()

	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	lost := s.Submit("sleep 1", "--gres=mig:7g.40gb:1")
	s.Within("the resume fails", is("State=DOWN+POWERED_DOWN"))
	s.Within("the offers are withdrawn", func() bool { return !is("7g.40gb:1")() })
	s.Within("the job waits for its next start", func() bool { return s.State(lost) == "PENDING" })
	s.Must("", "root", "scancel", lost)
	s.End("busy")
	s.Completed(busy)
}

// startPowerSaving starts a cluster whose second node slurmctld may suspend. If the broken file exists in dir, the node
// is not resumed.
func startPowerSaving(t *testing.T) (s *site, dir string) {
	t.Helper()
	script, err := cluster.Script()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	program := fmt.Sprintf(power, dir, filepath.Join(filepath.Dir(script), "lib"))
	for _, name := range []string{"suspend", "resume"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s = start(t, cluster.Options{Nodes: 2, GPUs: 1, AgentConfig: "testdata/planned.yaml", Conf: []string{
		"SuspendProgram=" + dir + "/suspend", "ResumeProgram=" + dir + "/resume", "SuspendExcNodes=n1",
		"SuspendTime=600", "SuspendTimeout=10", "ResumeTimeout=30",
		"SlurmctldParameters=power_save_interval=1,power_save_min_interval=0",
	}})
	if err := os.WriteFile(filepath.Join(dir, "cluster"), []byte(s.Dir), 0o644); err != nil {
		t.Fatal(err)
	}
	return s, dir
}
