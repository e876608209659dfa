package doctor

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"caelum/internal/api"
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
	if sound != len(checks())-1 { // limits has only informative findings
		t.Errorf("%d of %d checks passed", sound, len(checks()))
	}
}

// TestController checks that, on slurmctld's host, the checks of GPU nodes are skipped and all other checks are made.
func TestController(t *testing.T) {
	f := healthy()
	f.Controller, f.Node, f.Agent, f.Plugin, f.Files = true, slurm.Node{}, api.Status{}, Plugin{}, nil
	for _, s := range nodeSources {
		f.Missing[s] = fault("it is not here", "nothing")
	}
	f.Table.MaxNodes = 2
	found := Examine(f)
	if Count(found, Error) != 1 || Count(found, Warning) != 0 || Count(found, OK) < 7 {
		t.Errorf("%+v", found)
	}
	for _, g := range found {
		if g.Severity == Error && g.Check != "decision table" || g.Check == "node" || g.Check == "agent" ||
			g.Check == "isolation" {
			t.Errorf("%+v", g)
		}
	}
}

// TestNoFault checks that the doctor reports no fault if a broken GPU explains the number of slots, or if a file does
// not exist.
func TestNoFault(t *testing.T) {
	f := healthy()
	f.Agent.GPUs = append(f.Agent.GPUs, api.GPU{Index: 1, Problem: "the GPU is lost"})
	f.Node.Gres[0].Count, f.Node.Gres[2].Count, f.Node.MIGTotal = 14, 52, 56
	f.Files[1].Missing = true
	f.Config.Values["SchedulerType"], f.Config.Values["SchedulerParameters"] = "sched/builtin", ""
	if found := Examine(f); Count(found, Error) != 0 || Count(found, Warning) != 1 {
		t.Errorf("%+v", found)
	}
}

// TestUnreadSources checks that a finding lists the checks whose source is missing, except for the check with the name
// of the source, and that none of these checks passes.
func TestUnreadSources(t *testing.T) {
	gap := fault("it cannot be read", "repair it")
	for source, skipped := range map[Source]string{
		Slurmctld: "prolog, batch start, reconfigure, select, backfill, het jobs, gres types, accounting, release, " +
			"clock, node, closed, total, used, slots, partitions, catalogue, features, profiles, decision table, " +
			"plugin, isolation, plan settings, wake key, whole GPUs, limits",
		OwnNode:   "closed, total, used, slots, partitions, catalogue, features, profiles, isolation",
		Agent:     "gpus, instances, device files, used, slots, profiles, whole GPUs",
		Plugstack: "plugin",
		Devices:   "whole GPUs",
		Module:    "memory",
		Decisions: "",
		Slurmdbd:  "limits",
	} {
		f := healthy()
		f.Missing[source] = gap
		if source == Slurmctld {
			f.Missing[OwnNode] = gap // as Read sets it
		}
		found := Examine(f)
		want := "it cannot be read"
		if skipped != "" {
			want += "; not checked: " + skipped
		}
		if found[0].Text != want ||
			found[0].Check != string(source) ||
			Count(found, Error) != 1 {
			t.Errorf("%s: %+v, want first %q", source, found, want)
		}
		for _, g := range found[1:] {
			if g.Check == string(source) || slices.Contains(strings.Split(skipped, ", "), g.Check) {
				t.Errorf("without %s: %+v", source, g)
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
			t.Errorf("%+v: kept %v", c.after, slices.Collect(maps.Keys(got)))
		}
	}
	foreign := api.Instance{GI: 7, State: "foreign"}
	if got := steady(status(foreign), status(foreign)); len(got) != 0 {
		t.Errorf("kept %v", got)
	}
}
