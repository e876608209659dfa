package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"caelum/internal/controller/decisions"
	"caelum/internal/slurm"
)

// optionalTimeout is the time limit for a request to slurmctld that only adds information to the output. Without it,
// Slurm's commands would retry for 9 s while slurmctld is down (package slurm).
const optionalTimeout = 5 * time.Second

func newPartitionsClient() partitions { return slurm.New(slurm.Options{Timeout: optionalTimeout}) }

// warnPartitions writes a warning for each of the given partitions that slurmctld does not have, or one warning if
// slurmctld does not answer.
func warnPartitions(ctx context.Context, w io.Writer, ctl partitions, names []string) {
	if len(names) == 0 {
		return
	}
	all, err := ctl.Partitions(ctx)
	if err != nil {
		fmt.Fprintf(w, "caelum: warning: couldn't check whether slurmctld has these partitions: %s: %s\n",
			printable(strings.Join(names, ", ")), printable(err.Error()))
		return
	}
	var has []string
	for _, p := range all {
		has = append(has, p.Name)
	}
	for _, name := range names {
		if !slices.Contains(has, name) {
			fmt.Fprintf(w, "caelum: warning: slurmctld has no partition %q; the partitions are %s\n", name,
				printable(strings.Join(has, ", ")))
		}
	}
}

// partitionsOfTable returns the partitions that a valid decision table names.
func partitionsOfTable(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	t, err := decisions.Parse(string(text))
	if err != nil {
		return nil
	}
	if t.Bypass != "" {
		return append(t.Partitions, t.Bypass)
	}
	return t.Partitions
}

// partitionsOfLine returns the partition that a line of the decision table names, if any.
func partitionsOfLine(words []string) []string {
	if words[0] == "partition" || words[0] == "bypass" && words[1] != "off" {
		return words[1:2]
	}
	return nil
}
