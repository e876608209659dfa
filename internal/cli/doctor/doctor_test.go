package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

func TestHealthy(t *testing.T) {
	var sound int
	for _, g := range Examine(healthy()) {
		switch g.Severity {
		case OK:
			sound++
		case Info:
		default:
			t.Errorf("%+v", g)
		}
	}
	if sound != len(checks())-1 { // the limits check has no OK finding
		t.Errorf("%d checks passed, want %d", sound, len(checks())-1)
	}
}

// TestController tests that, on slurmctld's host, Examine skips the checks of GPU nodes and makes all other checks.
func TestController(t *testing.T) {
	f := healthy()
	f.Controller, f.Node, f.Agent, f.Plugin, f.Files = true, slurm.Node{}, api.Status{}, Plugin{}, nil
	for _, s := range nodeSources {
		f.Missing[s] = fault("the source is missing", "add the source")
	}
	f.Learn, f.Table.MaxNodes = true, 2
	f.Nodes[slices.IndexFunc(f.Nodes, slurm.Node.Catalogue)].States = []string{"IDLE"}
	found := Examine(f)
	if Count(found, Error) != 3 || Count(found, Warning) != 0 || Count(found, OK) < 7 {
		t.Errorf("%+v", found)
	}
	for _, g := range found {
		if g.Severity == Error && g.Check != "decision table" && g.Check != "catalogue" || g.Check == "node" ||
			g.Check == "agent" || g.Check == "isolation" {
			t.Errorf("%+v", g)
		}
	}
}

// TestUnconverted tests that before the conversion, the only finding says so.
func TestUnconverted(t *testing.T) {
	for _, controller := range []bool{false, true} {
		f := healthy()
		f.Controller, f.Nodes, f.Config.Values = controller, nil, maps.Clone(f.Config.Values)
		f.Config.Values["GresTypes"] = "gpu"
		f.Missing[Decisions] = fault("there is no table", "write one")
		if !controller {
			if found := Examine(f); len(found) < 2 {
				t.Errorf("with an agent: %+v", found)
			}
			f.Missing[Agent] = fault("there is no agent", "start it")
		}
		if found := Examine(f); len(found) != 1 || !strings.Contains(found[0].Text, "not converted yet") {
			t.Errorf("controller %v: %+v", controller, found)
		}
	}
}

// TestControllerHost tests that without --controller, the only finding on slurmctld's host names this flag, and that
// the finding depends on slurm.conf and on the agent.
func TestControllerHost(t *testing.T) {
	host := Host{Config: config.Defaults(), RunDir: t.TempDir(), Decisions: "/etc/caelum/decisions"}
	host.Config.Node = "elsewhere"
	ctl := func(name string) *slurm.Client {
		return slurm.New(slurm.Options{Run: func(_ context.Context, _ []string, _ string, args ...string) (
			string, string, error) {
			if slices.Contains(args, "config") {
				return "SLURM_VERSION = 22.05.8\nSlurmctldHost[0] = ctl(192.0.2.1)\nSlurmctldHost[1] = " + name +
					".example.org\n", "", nil
			}
			return "", "", nil
		}})
	}
	if found := Examine(Read(t.Context(), host, ctl(hostname()))); len(found) != 1 || found[0].Check != "host" ||
		found[0].Severity != Error || !strings.Contains(found[0].Next, "`caelum doctor --controller` on this host") {
		t.Errorf("%+v", found)
	}
	for _, f := range []*Facts{
		Read(t.Context(), host, ctl("not-"+hostname())),
		{Missing: map[Source]Finding{}, Config: healthyConfig()},
	} {
		if found := Examine(f); len(found) < 2 || f.ControllerHost {
			t.Errorf("%+v", found)
		}
	}
	host.Controller = true
	if found := Examine(Read(t.Context(), host, ctl(hostname()))); len(found) < 2 {
		t.Errorf("with --controller: %+v", found)
	}
}

// TestOffersWithoutSlurmctld tests that the agent check does not claim that slurmctld has the offers if slurmctld
// cannot be queried.
func TestOffersWithoutSlurmctld(t *testing.T) {
	f := healthy()
	f.Missing[Slurmctld] = fault("slurmctld cannot be queried", "find the cause")
	for _, g := range Examine(f) {
		if g.Check == "agent" && (g.Severity != OK || !strings.Contains(g.Text, "in slurmctld is unknown")) {
			t.Errorf("%+v", g)
		}
	}
}

// TestNoFault tests that Examine reports no error if an unusable GPU explains the number of slots, if Slurm allocates
// another GPU without slices, if the capability file of an idle slice does not exist, or if Slurm runs without the
// backfill scheduler.
func TestNoFault(t *testing.T) {
	f := healthy()
	f.Agent.GPUs = append(f.Agent.GPUs, api.GPU{Index: 1, Problem: "the GPU is lost"})
	f.Node.Gres[0].Count, f.Node.Gres[2].Count, f.Node.MIGTotal = 14, 52, 56
	f.Nodes[1].Gres[0].Count = 14
	f.Files[1].Missing = true
	f.Config.Values["SchedulerType"], f.Config.Values["SchedulerParameters"] = "sched/builtin", ""
	if found := Examine(f); Count(found, Error) != 0 || Count(found, Warning) != 1 {
		t.Errorf("%+v", found)
	}
	f = healthy()
	f.Node.Gres = append(f.Node.Gres, slurm.GRES{Name: "gpu", Type: "whole", Count: 1})
	if found := Examine(f); Count(found, Error) != 0 {
		t.Errorf("%+v", found)
	}
}

// TestUnreadSources tests that the finding for a missing source lists the checks that need it, except a check with the
// same name. None of these checks may have a finding of its own.
func TestUnreadSources(t *testing.T) {
	gap := fault("the source cannot be read", "repair the source")
	for source, skipped := range map[Source]string{
		Slurmctld: "prolog, batch start, reconfigure, select, backfill, preemption, moves, het jobs, gres types, " +
			"accounting, release, clock, node, closed, total, used, slots, partitions, catalogue, " +
			"features, resources, mixed partitions, profiles, decision table, learning, unlisted partitions, plugin, " +
			"isolation, fractions, plan settings, wake port, whole GPUs, limits",
		OwnNode:   "closed, total, used, slots, partitions, features, profiles, isolation, fractions",
		Agent:     "gpus, instances, ledger, slot files, device files, used, slots, profiles, whole GPUs",
		Plugstack: "plugin",
		Devices:   "ledger, whole GPUs",
		Module:    "capability files, memory",
		Decisions: "learning, unlisted partitions",
		Slurmdbd:  "limits",
	} {
		f := healthy()
		f.Missing[source] = gap
		if source == Slurmctld {
			f.Missing[OwnNode] = gap // Read also adds both entries
		}
		found := Examine(f)
		want := "the source cannot be read"
		if skipped != "" {
			want += "; not checked: " + skipped
		}
		if found[0].Text != want ||
			found[0].Check != string(source) ||
			Count(found, Error) != 1 {
			t.Errorf("without source %s: got %+v, want the first text %q and one error", source, found, want)
		}
		for _, g := range found[1:] {
			if g.Check == string(source) || slices.Contains(strings.Split(skipped, ", "), g.Check) {
				t.Errorf("without source %s, a check that needs the source has a finding: %+v", source, g)
			}
		}
	}
}

func TestSteady(t *testing.T) {
	leased := api.Instance{GI: 7, State: "leased", Job: 7}
	status := func(list ...api.Instance) api.Status {
		return api.Status{GPUs: []api.GPU{{UUID: "G", Instances: list}}}
	}
	for _, c := range []struct {
		after api.Instance
		kept  bool
	}{
		{leased, true},
		{api.Instance{GI: 7, State: "idle"}, false},
		{api.Instance{GI: 7, State: "leased", Job: 8}, false},
		{api.Instance{GI: 8, State: "leased", Job: 7}, false},
	} {
		if got := steady(status(leased), status(c.after)); (len(got) == 1) != c.kept {
			t.Errorf("after %+v, steady returned the instances %v, want an instance: %v", c.after,
				slices.Collect(maps.Keys(got)), c.kept)
		}
	}
	foreign := api.Instance{GI: 7, State: "foreign"}
	if got := steady(status(foreign), status(foreign)); len(got) != 0 {
		t.Errorf("steady returned the foreign instance: %v", got)
	}
}
