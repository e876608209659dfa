//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"caelum/internal/cli/doctor"
)

// diagnosis runs caelum doctor on n1 as root and returns its findings and exit status.
func (s *site) diagnosis(t *testing.T) (findings []doctor.Finding, status int) {
	t.Helper()
	a := s.call(t, "n1", "root", "", "caelum", "doctor", "--json")
	var out struct {
		Node     string
		Findings []doctor.Finding
	}
	if decode(t, a.stdout, &out); out.Node != "n1" || len(out.Findings) == 0 {
		t.Fatalf("caelum doctor returned status %d: %s%s", a.status, a.stdout, a.stderr)
	}
	return out.Findings, a.status
}

func has(findings []doctor.Finding, check string, severity doctor.Severity, text string) bool {
	for _, f := range findings {
		if f.Check == check && f.Severity == severity && strings.Contains(f.Text, text) {
			return true
		}
	}
	return false
}

// TestDoctor runs caelum doctor on a healthy node while a job holds a slice. The subtests damage the cluster and run
// caelum doctor again.
func TestDoctor(t *testing.T) {
	s := quietly(t, shared)
	id := s.submit(t, "./task doctor 1 600", "-w", "n1", "--gres=mig:2g.10gb:1")
	s.holding(t, "doctor", 1)
	s.doctorHealthy(t)
	t.Run("on slurmctld's host", s.doctorController)
	t.Run("a slice open to all", func(t *testing.T) { s.doctorOpenSlice(t, id) })
	s.must(t, "", user, "scancel", id)
	s.ended(t, id)
	t.Run("a catalogue node that is up", s.doctorCatalogueUp)
	t.Run("no agent", s.doctorNoAgent)
	t.Run("a foreign instance", s.doctorForeign)
}

func (s *site) doctorHealthy(t *testing.T) {
	findings, status := s.diagnosis(t)
	if status != 0 || doctor.Count(findings, doctor.Error) != 0 {
		t.Errorf("healthy: status %d: %+v", status, findings)
	}
	for _, check := range []string{"agent", "gpus", "instances", "device files", "prolog", "batch start", "gres types",
		"accounting", "clock",
		"closed", "total", "slots", "partitions", "catalogue", "features", "profiles", "plugin"} {
		if !has(findings, check, doctor.OK, "") {
			t.Errorf("the check %s of the healthy node is not ok: %+v", check, findings)
		}
	}
	if !has(findings, "isolation", doctor.Warning, "other jobs of the same user") {
		t.Errorf("no finding mentions the missing cgroups: %+v", findings)
	}
	if a := s.call(t, "n1", user, "", "caelum", "doctor"); a.status != 0 ||
		!strings.Contains(
			a.stdout,
			"warning  device files: the driver lists instances only for root; not checked: ledger, whole GPUs",
		) {
		t.Errorf("caelum doctor as a user returned status %d: %s%s", a.status, a.stdout, a.stderr)
	}
}

func (s *site) doctorController(t *testing.T) {
	a := s.call(t, "", "root", "", "caelum", "doctor", "--controller")
	if a.status != 0 || !strings.Contains(a.stdout, " decision table: ") ||
		strings.Contains(a.stdout, "device files") {
		t.Errorf("status %d: %s%s", a.status, a.stdout, a.stderr)
	}
	// The host "ctl" is in SlurmctldHost, and it is not a node.
	if a = s.call(t, "ctl", "root", "", "caelum", "doctor"); a.status != 1 ||
		!strings.Contains(a.stdout, "error    host: SlurmctldHost names this host") ||
		!strings.Contains(a.stdout, "run `caelum doctor --controller` on this host") {
		t.Errorf("without --controller: status %d: %s%s", a.status, a.stdout, a.stderr)
	}
	const broken = "/run/decisions.broken"
	s.must(t, "", "root", "sh", "-c", "{ grep -v max_nodes /etc/caelum/decisions; echo max_nodes 9; } >"+broken)
	a = s.call(t, "", "root", "", "caelum", "doctor", "--controller", "--decisions", broken)
	if a.status != 1 || !strings.Contains(a.stdout, "error    decision table: max_nodes is 9 in "+broken) {
		t.Errorf("status %d: %s%s", a.status, a.stdout, a.stderr)
	}
}

// doctorOpenSlice makes the job's slice accessible to all users, and checks that caelum doctor reports this as an
// error.
func (s *site) doctorOpenSlice(t *testing.T, id string) {
	cap := strings.TrimSpace(s.must(t, "n1", "root", "find", "/dev/nvidia-caps", "-user", user, "-print", "-quit"))
	s.must(t, "n1", "root", "chmod", "444", cap)
	defer s.must(t, "n1", "root", "chmod", "400", cap)
	findings, status := s.diagnosis(t)
	if status != 1 || !has(findings, "device files", doctor.Error, cap+" of job "+id+" (") {
		t.Errorf("status %d: %+v", status, findings)
	}
}

func (s *site) doctorCatalogueUp(t *testing.T) {
	s.must(t, "", "root", "scontrol", "update", "nodename=mig-catalog1", "state=resume")
	defer s.must(t, "", "root", "scontrol", "update", "nodename=mig-catalog1", "state=future")
	if findings, status := s.diagnosis(t); status != 1 ||
		!has(findings, "catalogue", doctor.Error, "mig-catalog1 is ") {
		t.Errorf("status %d: %+v", status, findings)
	}
}

func (s *site) doctorNoAgent(t *testing.T) {
	if err := s.StopUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.StartUnit("agent-n1"); err != nil {
			t.Error(err)
		}
	}()
	findings, status := s.diagnosis(t)
	if status != 1 || !has(findings, "agent", doctor.Error, "the agent does not answer") ||
		has(findings, "instances", doctor.OK, "") {
		t.Errorf("status %d: %+v", status, findings)
	}
}

// doctorForeign creates and destroys a foreign instance while the agent is stopped. A starting agent detects the change
// immediately, whereas a running one may need up to a minute.
func (s *site) doctorForeign(t *testing.T) {
	restart := func(meanwhile ...string) {
		if err := s.StopUnit("agent-n1"); err != nil {
			t.Fatal(err)
		}
		s.must(t, "n1", "root", meanwhile...)
		if err := s.StartUnit("agent-n1"); err != nil {
			t.Fatal(err)
		}
	}
	restart("sh", "-c", "for i in 0 1 2 3 4 5 6; do nvml-emulator create 1 1g.5gb $i && exit; done; exit 1")
	within(t, "the agent has published", func() bool {
		status, err := s.status("n1")
		return err == nil && status.PublishedAt != 0 && status.PublishError == ""
	})
	findings, status := s.diagnosis(t)
	gi := ""
	for _, f := range findings {
		if f.Check == "instances" && f.Severity == doctor.Warning && strings.Contains(f.Text, "on GPU 1 is foreign") {
			_, gi, _ = strings.Cut(f.Next, "-gi ")
			gi, _, _ = strings.Cut(gi, " ")
		}
	}
	if status != 0 || gi == "" {
		t.Fatalf("status %d: %+v", status, findings)
	}
	restart("nvml-emulator", "destroy", "1", gi)
}
