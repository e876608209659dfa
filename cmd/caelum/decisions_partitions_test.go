package main

import (
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// TestWarnPartitions tests the warnings about partitions that slurmctld does not have, and which lines name partitions.
func TestWarnPartitions(t *testing.T) {
	ctl := partitionsOf{partitions: []slurm.Partition{{Name: "gpu"}, {Name: "whole"}}}
	for names, want := range map[string]string{
		"":          "",
		"gpu whole": "",
		"gpu gpux":  "caelum: warning: slurmctld has no partition \"gpux\"; the partitions are gpu, whole\n",
	} {
		var out strings.Builder
		if warnPartitions(t.Context(), &out, ctl, strings.Fields(names)); out.String() != want {
			t.Errorf("%s: %q, want %q", names, out.String(), want)
		}
	}
	for line, want := range map[string]string{
		"partition gpu grow=oom": "gpu",
		"bypass whole":           "whole",
		"bypass off":             "",
		"default 1g.5gb":         "",
	} {
		if got := strings.Join(partitionsOfLine(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
