//go:build e2e

package e2efaults

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/cli/doctor"
)

// TestDrift checks a driver that renames 1g.5gb to 1g.6gb between two starts of the agent, while a job holds a 1g.5gb
// slice. The test also applies the remedy that `caelum doctor` prints.
func TestDrift(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 1, KeepDeviceFiles: true, AgentConfig: tightest})
	keep := s.Submit("./hold keep", "--gres=mig:1g.5gb:1")
	s.Running(keep)
	before := s.Slice("n1", keep)
	if s.findings("", doctor.Error) {
		t.Error("caelum doctor found an error before the driver changed")
	}

	s.withoutAgent(func() {
		s.Must("n1", "root", "nvml-emulator", "drift", "--profile", "1g.5gb", "--name", "1g.6gb", "--memory", "5888")
	})
	s.Within(
		"the agent has published the new name",
		func() bool { return s.published("n1") && s.planned("n1")["1g.6gb"] > 0 },
	)
	// slurmctld lists the new name after the closed type. This order must not make the agent write repeatedly.
	s.writesNothing("n1")
	now := s.Slice("n1", keep)
	if now.UUID != before.UUID || now.Start != before.Start || now.Profile != "1g.6gb" || now.MemoryMiB != 5888 {
		t.Errorf("the running job held %+v before, and holds %+v now", before, now)
	}
	s.driftReported()
	s.oldName()
	s.End("keep")
	s.Completed(keep)
	s.driftRemedied()
	s.NoneDrained()
	s.NothingLeft()
}

// withoutAgent stops n1's agent, calls do and restarts the agent.
func (s *site) withoutAgent(do func()) {
	s.t.Helper()
	if err := s.StopUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	do()
	if err := s.StartUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
}

// driftReported checks that the agent's log, slurmctld's node and caelum doctor report the change.
func (s *site) driftReported() {
	s.t.Helper()
	const said = "which the node's driver does not report"
	log, err := s.Log("agent-n1")
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.Contains(log, "slurm.conf gives n1 the profiles 1g.5gb, "+said) {
		s.t.Error("the agent's log does not contain the old profile")
	}
	if shown := s.Must("n1", "root", "caelum", "status"); !strings.Contains(
		shown,
		"slurm.conf lists 1g.5gb, which this node's driver does not report",
	) {
		s.t.Errorf("caelum status:\n%s", shown)
	}
	if !s.findings("slurm.conf gives n1 the profiles 1g.5gb, "+said, doctor.Error) ||
		!s.findings("no catalogue node has slices of 1g.6gb", doctor.Error) ||
		!s.findings("AccountingStorageTRES does not include 1g.6gb", doctor.Warning) {
		s.t.Errorf("caelum doctor:\n%s", s.Try("n1", "caelum", "doctor"))
	}
}

// oldName checks a job that requested the old name. If it starts on the node, it must get an equivalent profile. The
// agent does not offer the old name, so only an administrator can start it.
func (s *site) oldName() {
	s.t.Helper()
	var old string
	s.withoutAgent(func() {
		s.Must("", "root", "bash", "-c", `gres=$(scontrol show node n1 | sed -n 's/^ *Gres=//p'); `+
			`scontrol update nodename=n1 gres="${gres/1g.5gb:0/1g.5gb:2}"`)
		old = s.Submit("./hold old", "--gres=mig:1g.5gb:1")
		s.Within("slurmctld has started the job", func() bool { return s.State(old) != "PENDING" })
	})
	s.Running(old)
	if has := s.Slice("n1", old); has.Profile != "1g.6gb" || has.AdvertisedAs != "1g.5gb" {
		s.t.Errorf("the job with the old name holds %+v", has)
	}
	s.End("old")
	s.Completed(old)
}

// driftRemedied applies the remedy that caelum doctor prints, and checks that it works.
func (s *site) driftRemedied() {
	s.t.Helper()
	lines := s.Must("n1", "root", "caelum", "slurm-config", "--nodes", "n1", "--catalogue", "1", "--section", "nodes")
	if !strings.Contains(lines, "mig:1g.6gb:0") || strings.Contains(lines, "1g.5gb") {
		s.t.Fatalf("caelum slurm-config printed:\n%s", lines)
	}
	s.Must("", "root", "sed", "-i", "s/1g[.]5gb/1g.6gb/g", "/etc/slurm/slurm.conf")
	s.Must("", "root", "sed", "-i", "1s/.*/caelum-decisions 1 2/; s/1g[.]5gb/1g.6gb/", "/etc/caelum/decisions")
	if err := s.RestartUnit("slurmctld"); err != nil {
		s.t.Fatal(err)
	}
	s.Within("the agent has published again", func() bool { return s.published("n1") && s.planned("n1")["1g.6gb"] > 0 })
	if s.findings("1g.5gb", doctor.Error) || s.findings("1g.6gb", doctor.Error) ||
		s.findings("AccountingStorageTRES", doctor.Warning) {
		s.t.Errorf("after the remedy, caelum doctor printed:\n%s", s.Try("n1", "caelum", "doctor"))
	}
	if _, refused, err := s.Exec(s.t.Context(), user, "sbatch", "--gres=mig:1g.5gb:1", "--wrap", "true"); err == nil ||
		!strings.Contains(refused, "the MIG profile 1g.5gb does not exist; the profiles are 1g.6gb, ") {
		s.t.Errorf("sbatch with the old name printed %q, %v", refused, err)
	}
	s.Completed(s.Submit("cuda-process --exclusive", "--gres=mig:1g.6gb:1"))
}

// writesNothing checks that the agent writes nothing during two passes if the queue does not change.
func (s *site) writesNothing(node string) {
	s.t.Helper()
	before, then := s.writes(node), time.Now()
	s.Within("the agent has run two more passes", func() bool {
		status, err := s.Status(node)
		return err == nil && status.PublishedAt > then.Unix()+1
	})
	if n := s.writes(node) - before; n > 0 {
		s.t.Errorf("the agent of %s wrote to slurmctld %d times without a change", node, n)
	}
}

// writes returns the number of the agent's writes to slurmctld.
func (s *site) writes(node string) int {
	s.t.Helper()
	log, err := s.Log("agent-" + node)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(log, `"msg":"published"`)
}

// findings reports whether caelum doctor on n1 prints a finding with the given severity and text.
func (s *site) findings(says string, severity doctor.Severity) bool {
	s.t.Helper()
	text, stderr, _ := s.ExecNode(s.t.Context(), "n1", "root", "caelum", "doctor", "--json")
	var out struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Findings) == 0 {
		s.t.Fatalf("caelum doctor: %v: %s%s", err, text, stderr)
	}
	for _, f := range out.Findings {
		if f.Severity == severity && strings.Contains(f.Text, says) {
			return true
		}
	}
	return false
}
