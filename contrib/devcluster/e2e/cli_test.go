//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"caelum/internal/node/api"
)

// TestCommandLine runs caelum as an ordinary user, on a node, in a job and on the login node.
func TestCommandLine(t *testing.T) {
	s := quietly(t, shared)
	id := s.submit(t, "caelum job $SLURM_JOB_ID >cli.out\n./task cli 1 600", "-w", "n1", "--gres=mig:2g.10gb:1")
	s.holding(t, "cli", 1)

	status := s.must(t, "n1", stranger, "caelum", "status")
	for _, want := range []string{"node n1, offers published ", "GPU 0  NVIDIA A100", "GPU 1  NVIDIA A100", "2g.10gb",
		"job " + id, user, "on offer: "} {
		if !strings.Contains(status, want) {
			t.Errorf("the output of caelum status does not contain %q:\n%s", want, status)
		}
	}
	var node api.Status
	decode(t, s.must(t, "n1", stranger, "caelum", "status", "--json"), &node)
	if len(node.Leases) != 1 || len(node.GPUs) != 2 || node.Published["2g.10gb"] < 1 {
		t.Errorf("caelum status --json printed %+v", node)
	}

	out := s.must(t, "n1", user, "caelum", "job", id)
	for _, want := range []string{"job " + id, "of " + user, "slot ", "2g.10gb at ", "MIG-"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output of caelum job does not contain %q:\n%s", want, out)
		}
	}
	in := strings.TrimSpace(s.read(t, "cli.out"))
	// The rest of the line, after a slice's UUID, is its usage, which changes.
	before := func(text string) string { return strings.Split(text, " MIG-")[0] }
	if before(in) != before(out) {
		t.Errorf("caelum job prints\n%s\nin the job, and\n%s\noutside the job", in, out)
	}
	var lease api.Lease
	decode(t, s.must(t, "n1", user, "caelum", "job", id, "--json"), &lease)
	if len(lease.Slices) != 1 || lease.User != user || lease.Slices[0].Profile != "2g.10gb" {
		t.Errorf("caelum job --json printed %+v", lease)
	}
	for _, test := range []struct {
		node   string
		args   string
		status int
		says   string
	}{
		{"n1", "job", 2, "arg"},
		{"n1", "job twelve", 2, "not a job id"},
		{"n1", "status now", 1, "no such node"},
		{"n1", "status n1 n2", 2, "arg"},
		{"", "top --interval 1s", 2, "at least 10s"},
		{"n1", "status --jsom", 2, "--jsom"},
		{"n1", "statu", 2, "statu"},
		{"n1", "slurm-config --section slurm", 2, "slurm.conf, nodes, gres.conf"},
		{"n2", "job " + id, 4, "job " + id + " holds no slice on this node"},
		{"n1", "job 4000000000", 4, "holds no slice"},
		{"", "job " + id + " --json", 3, "does not answer"},
	} {
		a := s.call(t, test.node, user, "", append([]string{"caelum"}, strings.Fields(test.args)...)...)
		if a.status != test.status || !strings.Contains(a.stderr, test.says) || a.stdout != "" {
			t.Errorf(
				"caelum %s on %q returned status %d, want %d; stderr %q, want %q; stdout %q",
				test.args,
				test.node,
				a.status,
				test.status,
				a.stderr,
				test.says,
				a.stdout,
			)
		}
	}

	s.statusElsewhere(t, id)

	s.must(t, "", user, "scancel", id)
	s.ended(t, id)
	within(t, "caelum job no longer shows the job", func() bool {
		return s.call(t, "n1", user, "", "caelum", "job", id).status == 4
	})
}

// statusElsewhere checks that every user can see the nodes and the job on the login node, which has no agent.
func (s *site) statusElsewhere(t *testing.T, id string) {
	t.Helper()
	var all struct {
		Nodes []struct {
			Node string
			GPUs []struct {
				Layout    string
				Instances []api.Placement
			}
		}
	}
	// The agents publish a lease a moment after the job has started.
	within(t, "caelum status on the login node shows the slice", func() bool {
		decode(t, s.must(t, "", stranger, "caelum", "status", "--json"), &all)
		return len(all.Nodes) == 2 && len(all.Nodes[0].GPUs) == 2 &&
			strings.Contains(all.Nodes[0].GPUs[0].Layout+all.Nodes[0].GPUs[1].Layout, "2g.10gb=")
	})
	for _, args := range [][]string{{"status"}, {"top"}} {
		text := s.must(t, "", stranger, append([]string{"caelum"}, args...)...)
		for _, want := range []string{"2 nodes, 4 GPUs", "\nn1 ", "\nn2 ", "2="} {
			if !strings.Contains(text, want) {
				t.Errorf("the output of caelum %v does not contain %q:\n%s", args, want, text)
			}
		}
	}
	text := s.must(t, "n2", stranger, "caelum", "status", "n1")
	for _, want := range []string{"node n1, ", "2g.10gb  at ", "busy", "on offer: ", "\n" + id + " ", user} {
		if !strings.Contains(text, want) {
			t.Errorf("the output of caelum status n1 does not contain %q:\n%s", want, text)
		}
	}
}

// TestSlurmConfig checks that only root can run caelum slurm-config, because the driver shows a GPU's properties only
// to root.
func TestSlurmConfig(t *testing.T) {
	s := shared
	conf := s.must(t, "n1", "root", "caelum", "slurm-config", "--nodes", "n[1-2]", "--cpus", "64", "--memory", "256000")
	for _, want := range []string{
		"GresTypes=gpu,mig", "PrologFlags=Alloc", "JobSubmitPlugins=lua", "required spank_caelum.so",
		"caelum-decisions 1 1",
		"NodeName=n[1-2] Gres=gpu:a100:14,mig:1g.5gb:0,mig:1g.10gb:0,mig:2g.10gb:0," +
			"mig:3g.20gb:0,mig:4g.20gb:0,mig:7g.40gb:0,mig:closed:56",
		"File=/dev/caelum/slot[0-13]",
	} {
		if !strings.Contains(conf, want) {
			t.Errorf("no %q in\n%s", want, conf)
		}
	}
	part := s.must(t, "n1", "root", "caelum", "slurm-config", "--section", "gres.conf", "--nodes", "n1")
	if first, _, _ := strings.Cut(part, "\n"); first != "AutoDetect=off" {
		t.Errorf("--section gres.conf printed\n%s", part)
	}
	var inventory map[string]any
	decode(t, s.must(t, "n1", "root", "caelum", "slurm-config", "--json"), &inventory)
	if len(inventory) == 0 {
		t.Error("--json printed nothing")
	}
	for node, reason := range map[string]string{"n1": "run the command as root", "": "couldn't open NVML"} {
		if a := s.call(t, node, user, "", "caelum", "slurm-config"); a.status != 1 ||
			!strings.Contains(a.stderr, reason) ||
			a.stdout != "" {
			t.Errorf("caelum slurm-config by a user on %q returned status %d: %s", node, a.status, a.stderr)
		}
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Errorf("%v in %s", err, text)
	}
}
