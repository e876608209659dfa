//go:build e2e

package e2elearn

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// needs uses as many MiB of GPU memory as its first argument states.
const needs = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH --time=10\ncuda-process --curve 0:500,1:$1,3:$1\n"

// TestArguments checks that runs of a script with different numbers in its arguments get slices of the size that each
// needs. At first, a larger number than that of the only run must not get the slice that this run needed. Once three
// numbers are known, the profiles for the numbers between them follow.
func TestArguments(t *testing.T) {
	s := start(t, "learn: true\npoll_interval: 1s\nsample_interval: 200ms\nlog_format: json\n",
		cluster.Options{Nodes: 1, GPUs: 1})
	path := s.write("user1", "needs", needs)
	for _, c := range []struct{ argument, profile, why string }{
		{"3000", "7g.40gb", "the first run"},
		{"9000", "3g.20gb", "three times the memory of the first run, with a margin for the growth"},
		{"15000", "3g.20gb", "the memory of the largest number, in proportion"},
		{"3000", "1g.5gb", "as the first run"},
		{"4000", "1g.5gb", "between 3000 and 9000"},
		{"6000", "1g.10gb", "between 3000 and 9000"},
	} {
		id := strings.TrimSpace(s.must("user1", "sbatch", "--parsable", "-o", "/dev/null", path, c.argument))
		s.until("", "squeue", "-h")
		s.until("COMPLETED", "sacct", "-X", "-n", "-P", "-j", id, "-o", "State")
		if got := s.profile(id); got != c.profile {
			t.Errorf("%s got %s, want %s: %s\n%s", c.argument, got, c.profile, c.why,
				s.must("root", "cat", "/etc/caelum/decisions"))
		}
		s.until("1", "sh", "-c", "sacct -X -n -P -j "+id+" -o AdminComment | grep -c caelum:run=")
		s.on("", "caelum", "repo", "sync")
		s.on("", "caelum", "repo", "decisions")
	}
}
