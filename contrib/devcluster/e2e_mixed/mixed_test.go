//go:build e2e

package e2emixed

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/cli/doctor"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

const user = clustertest.User

// site is a running cluster. old is the release that all hosts run at first, and fresh is the release after an upgrade.
type site struct {
	*clustertest.Site
	t          *testing.T
	old, fresh slurm.Release
	confined   bool // cgroups confine the jobs' devices
}

// onEach runs a test on two clusters: without cgroups, and with cgroups that confine the jobs' devices.
func onEach(t *testing.T, test func(s *site)) {
	for name, version := range map[string]string{"no cgroups": "", "cgroup v2": "v2"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, version)
			test(s)
			s.NoneDrained()
			s.NothingLeft()
		})
	}
}

func start(t *testing.T, cgroup string) *site {
	t.Helper()
	root := os.Getenv("CAELUM_NEW_ROOT")
	if root == "" {
		t.Skip("CAELUM_NEW_ROOT is not set; run make mixed")
	}
	config := filepath.Join(t.TempDir(), "caelum.yaml")
	text := "poll_interval: 1s\nwake_port: 6873\nlearn: false\nlog_format: json\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, confined: cgroup != "", Site: clustertest.Start(t, cluster.Options{
		Nodes: 2, GPUs: 2, NewRoot: root, Cgroup: cgroup, AgentConfig: config,
		// A requeued job waits one second longer than cred_expire (default: 120 s).
		Conf: []string{"AuthInfo=cred_expire=5"},
	})}
	s.old = s.Release()
	return s
}

// replace upgrades the host of slurmdbd (dbd) or slurmctld (ctl), and calls meanwhile while the daemon is stopped.
func (s *site) replace(host, unit string, meanwhile func()) {
	s.t.Helper()
	s.do(s.StopUnit(unit))
	meanwhile()
	s.do(s.Upgrade(host))
	s.do(s.StartUnit(unit))
	release, err := slurm.ParseRelease(s.Must(host, "root", unit, "-V"))
	if err != nil || release.Compare(s.old) <= 0 {
		s.t.Fatalf("%s is %v, %v after an upgrade from %v", unit, release, err, s.old)
	}
	s.fresh = release
	if log, err := s.Log(unit); err != nil || !strings.Contains(log, unit+" version "+release.String()+".") {
		s.t.Errorf("the log of %s does not show a start of %v: %v", unit, release, err)
	}
}

// registered waits until slurmctld shows the given release of the node's slurmd.
func (s *site) registered(node string, release slurm.Release) {
	s.t.Helper()
	s.Within(node+" has registered with slurmd "+release.String(), func() bool {
		got, err := slurm.ParseRelease(s.Must("", "root", "sinfo", "-h", "-p", "plain", "-n", node, "-o", "%v"))
		return err == nil && got == release
	})
}

// do fails the test unless err, the error from an action on the cluster's daemons, is nil.
func (s *site) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) output(id string) string {
	s.t.Helper()
	out, err := os.ReadFile(filepath.Join(s.Home(), "slurm-"+id+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out)
}

// accounted waits until sacct shows that the job has completed with the given TRES.
func (s *site) accounted(id, tres string) {
	s.t.Helper()
	s.Within("sacct shows job "+id+" with "+tres, func() bool {
		state, all, _ := strings.Cut(s.Must("", "root", "sacct", "-nPX", "-j", id, "-o", "State,AllocTRES"), "|")
		return state == "COMPLETED" && strings.Contains(","+all+",", ","+tres+",")
	})
}

// stepDevices runs a step in a running job with the given node's srun, and returns the step's devices.
func (s *site) stepDevices(node, id string) string {
	s.t.Helper()
	return s.Must(node, user, "srun", "--jobid", id, "--overlap", "printenv", "CUDA_VISIBLE_DEVICES")
}

// controller is slurmctld's host.
const controller = "ctl"

// diagnosis returns the findings of caelum doctor on a node or on the controller.
func (s *site) diagnosis(node string) []doctor.Finding {
	s.t.Helper()
	args := []string{"caelum", "doctor", "--json"}
	if node == controller {
		args = append(args, "--controller")
	}
	// The exit status is 1, because caelum doctor reports the emulated driver and the missing cgroups as errors.
	stdout, stderr, _ := s.ExecNode(s.t.Context(), node, "root", args...)
	var out struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		s.t.Fatalf("caelum doctor on %q returned %v: %s%s", node, err, stdout, stderr)
	}
	return out.Findings
}

// healthy fails the test if the result of one of the given checks of caelum doctor is not ok.
func (s *site) healthy(node string, checks ...string) {
	s.t.Helper()
	if s.confined && node != controller {
		checks = append(checks, "isolation")
	}
	findings := s.diagnosis(node)
	for _, check := range checks {
		if !slices.ContainsFunc(findings, func(f doctor.Finding) bool {
			return f.Check == check && f.Severity == doctor.OK
		}) {
			s.t.Errorf("the check %s of caelum doctor on %q is not ok: %+v", check, node, findings)
		}
	}
}

// pluginRefused fails the test unless caelum doctor reports that the plugin is too new for the node's last slurmd.
func (s *site) pluginRefused(node string) {
	s.t.Helper()
	findings := s.diagnosis(node)
	if !slices.ContainsFunc(findings, func(f doctor.Finding) bool {
		return f.Check == "plugin" && f.Severity == doctor.Error &&
			strings.Contains(f.Text, "was built for Slurm "+s.fresh.String()+", but slurmd "+s.old.String())
	}) {
		s.t.Errorf("caelum doctor on %s does not report the new plugin: %+v", node, findings)
	}
}

// TestOlderNodes runs jobs and restarts daemons while only the nodes have the older release. Each step is started by a
// node's srun. A release of srun that is newer than slurmd can fail, with or without Caelum.
func TestOlderNodes(t *testing.T) {
	onEach(t, func(s *site) {
		s.replace("dbd", "slurmdbd", func() {})
		s.replace(controller, "slurmctld", func() {})
		s.do(s.RestartUnit("watcher"))
		s.do(s.Upgrade("login"))
		for _, node := range s.Nodes {
			s.registered(node, s.old)
		}
		s.jobs()
		s.requeue()
		s.restarts()
		s.commands()
	})
}

func (s *site) jobs() {
	one := s.Submit(show, "--gres=gpu:1")
	typed := s.Submit(show, "--gres=mig:2g.10gb:1")
	s.Completed(one, typed)
	s.accounted(one, "gres/mig=1")
	s.accounted(typed, "gres/mig:2g.10gb=1")
	s.showed(one, 1)
	s.showed(typed, 1)
	s.twoNodes("--gres=gpu:1,mig:1g.5gb:1")
	direct := s.Must("n1", user, "srun", "-Q", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES")
	if !strings.HasPrefix(direct, "MIG-") {
		s.t.Errorf("srun on n1 got the device %q", direct)
	}
}

// show is the command of a step that prints the node and the slice of each task.
const show = "srun sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"

// showed checks the output of a job that ran show, whose tasks must have had slices on the given number of nodes.
func (s *site) showed(id string, nodes int) {
	s.t.Helper()
	out := s.output(id)
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		if w := strings.Fields(line); len(w) == 2 && strings.HasPrefix(w[1], "MIG-") {
			seen[w[0]] = true
		}
	}
	if len(seen) != nodes {
		s.t.Errorf("job %s has slices on %v, not on %d nodes:\n%s", id, seen, nodes, out)
	}
}

// twoNodes runs a job with a step on both nodes.
func (s *site) twoNodes(gres string) {
	s.t.Helper()
	id := s.Submit(show, "-N2", gres)
	s.Completed(id)
	s.accounted(id, "gres/mig=2")
	s.showed(id, 2)
}

func (s *site) requeue() {
	id := s.Submit("./hold requeue", "--requeue", "--gres=mig:2g.10gb:1")
	s.Running(id)
	s.Must("", user, "scontrol", "requeue", id)
	s.Within("job "+id+" is in the queue again", func() bool { return s.Lives(id) == "PENDING" })
	s.Within("job "+id+" runs again", func() bool {
		return strings.Contains(s.Must("", "root", "scontrol", "show", "job", id), " Restarts=1 ") &&
			s.Lives(id) == "RUNNING"
	})
	s.End("requeue")
	s.Within("job "+id+" ends", func() bool { return s.Lives(id) == "COMPLETED" })
	s.accounted(id, "gres/mig:2g.10gb=1")
}

func (s *site) restarts() {
	id := s.Submit("./hold restarts", "-w", "n1", "--gres=mig:2g.10gb:1")
	s.Running(id)
	slice := s.Slice("n1", id)
	for _, unit := range []string{"slurmd-n1", "slurmctld", "agent-n1"} {
		s.do(s.RestartUnit(unit))
		if now := s.Slice("n1", id); now != slice {
			s.t.Errorf("after the restart of %s, job %s holds %+v, want %+v", unit, id, now, slice)
		}
		other := s.Submit("cuda-process --exclusive --seconds 0", "-w", "n1", "--gres=mig:1g.5gb:1")
		s.Completed(other)
		if got := s.stepDevices("n1", id); got != slice.UUID {
			s.t.Errorf("after the restart of %s, a step of job %s has %s, not %s", unit, id, got, slice.UUID)
		}
	}
	s.End("restarts")
	s.Completed(id)
	s.accounted(id, "gres/mig:2g.10gb=1")
}

// commands runs caelum's commands on a node and on the controller while one job runs and another job waits.
func (s *site) commands() {
	runs := s.Submit("./hold commands", "-w", "n1", "--gres=mig:2g.10gb:1")
	s.Running(runs)
	waits := s.Submit("true", "-w", "n1", "--gres=mig:7g.40gb:2,gpu:2")
	for _, node := range []string{controller, "n1"} {
		s.Within("caelum explain shows job "+waits+" as the first waiting job", func() bool {
			var e plan.Explanation
			err := json.Unmarshal([]byte(s.Must(node, "root", "caelum", "explain", waits, "--json")), &e)
			return err == nil && e.Verdict == "first"
		})
	}
	if out := s.Must("n1", "root", "caelum", "status"); !strings.Contains(out, runs) {
		s.t.Errorf("caelum status does not show job %s:\n%s", runs, out)
	}
	s.healthy("n1", "agent", "instances", "release", "node", "used", "profiles", "plugin")
	s.healthy(controller, "release", "decision table")
	s.End("commands")
	s.Completed(runs, waits)
}
