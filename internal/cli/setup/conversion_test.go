package setup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestMissing checks the reason for which setup waits for a node after the restarts.
func TestMissing(t *testing.T) {
	before, after := time.Unix(100, 0), time.Unix(200, 0)
	gpus := slurm.GRESList{{Name: "gpu", Count: 2}}
	slots := slurm.GRESList{{Name: "gpu", Count: 14}, {Name: "mig", Type: "closed", Count: 56}}
	restarted := slurm.Node{Name: "n1", States: []string{"IDLE", "DRAIN"}, SlurmdStartTime: after, Gres: slots,
		Extra: "caelum=1;none"}
	with := func(change func(*slurm.Node)) slurm.Node {
		n := restarted
		change(&n)
		return n
	}
	for _, c := range []struct {
		name, want string
		undo       bool
		node       slurm.Node
	}{
		{"complete", "", false, restarted},
		{"old slurmd", "n1: slurmd has not been restarted", false,
			with(func(n *slurm.Node) { n.SlurmdStartTime = before })},
		{"after slurmctld's restart", "n1: slurmd has not registered", false,
			with(func(n *slurm.Node) { n.Unregistered = true })},
		{"stopped", "n1: slurmd has not registered", false, with(func(n *slurm.Node) { n.States = []string{"DOWN"} })},
		{"without MIG mode", "n1: slurmd registered other GPUs", false,
			with(func(n *slurm.Node) { n.States = append(n.States, "INVALID_REG") })},
		{"without agent", "n1: the agent (caelumd)", false, with(func(n *slurm.Node) { n.Extra = "rack=7" })},
		{"registered too early", "n1: slurmctld still counts the GPUs", false,
			with(func(n *slurm.Node) { n.Gres = append(slurm.GRESList{{Name: "mig", Type: "1g.5gb"}}, gpus...) })},
		{"GPUs without MIG", "", false,
			with(func(n *slurm.Node) {
				n.Gres = append(slurm.GRESList{{Name: "mig", Type: "full", Count: 2}}, gpus...)
			})},
		{"undone", "", true, with(func(n *slurm.Node) { n.Gres = gpus })},
		{"undone, with slots", "n1: slurmctld still counts the GPUs", true, restarted},
		{"other", "", false, with(func(n *slurm.Node) { n.Name, n.Extra = "n2", "" })},
		{"other, old", "n2: slurmd has not been restarted", false,
			with(func(n *slurm.Node) { n.Name, n.SlurmdStartTime = "n2", before })},
		{"other, after slurmctld's restart", "n2: slurmd has not been restarted", false,
			with(func(n *slurm.Node) { n.Name, n.SlurmdStartTime = "n2", time.Time{} })},
		{"other, down", "", false,
			with(func(n *slurm.Node) { n.Name, n.SlurmdStartTime, n.States = "n2", before, []string{"DOWN"} })},
	} {
		conversion := Conversion{Nodes: []string{"n1"}, Undo: c.undo, GPUs: map[string]int{"n1": 2},
			Slurmds: map[string]time.Time{"n1": before, "n2": before}}
		got := strings.Join(conversion.Missing([]slurm.Node{c.node}), "; ")
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: waits for %q, want %q", c.name, got, c.want)
		}
	}
}

// TestBusy checks that setup waits for the jobs that hold GPUs, and names no others.
func TestBusy(t *testing.T) {
	gpu := slurm.GRESList{{Name: "gpu", Count: 1}}
	shard := slurm.GRESList{{Name: "shard", Count: 1}}
	used := []slurm.Node{
		{Name: "n1", GresUsed: gpu}, {Name: "n2"}, {Name: "n3", GresUsed: gpu}, {Name: "n4", GresUsed: shard},
	}
	c := Conversion{Nodes: []string{"n1", "n2", "n4"}}
	got := c.Busy(used, []slurm.Job{
		{ID: 1, User: "a", State: "RUNNING", Nodes: []string{"n1"}, PerNode: gpu},
		{ID: 2, User: "b", State: "RUNNING", Nodes: []string{"n1", "n2"}},
		{ID: 3, User: "c", State: "COMPLETED", Nodes: []string{"n1"}, PerNode: gpu},
		{ID: 4, User: "d", State: "RUNNING", Nodes: []string{"n4"}, PerNode: shard},
	})
	want := []string{"GPUs of n1 are in use by jobs: 1 of a", "GPUs of n4 are in use by jobs: 4 of d"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestResumable checks that setup resumes no node that others have drained.
func TestResumable(t *testing.T) {
	drained := func(name, reason string) slurm.Node {
		return slurm.Node{Name: name, States: []string{"IDLE", "DRAIN"}, Reason: reason}
	}
	c := Conversion{Nodes: []string{"n1", "n2", "n3"}, Drained: []string{"n1", "n2"}}
	got := c.Resumable([]slurm.Node{
		drained("n1", "caelum setup [root@2026-11-30T09:34:34]"),
		drained("n2", "broken fan"),
		drained("n3", "maintenance"),
		drained("n4", "gres/mig count reported lower than configured (0 < 2)"),
		drained("n5", "gres/gpu count reported lower than configured (1 < 2)"),
	})
	if want := []string{"n1", "n4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
