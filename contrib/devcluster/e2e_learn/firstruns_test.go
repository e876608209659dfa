//go:build e2e

package e2elearn

import (
	"fmt"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// TestFirstRuns checks that an edited script gets the size that the user's other scripts with the same job name need,
// and that another user gets the default. A script that has run gets its own size, whatever its job name.
func TestFirstRuns(t *testing.T) {
	s := start(t, "learn: true\npoll_interval: 1s\nsample_interval: 200ms\nlog_format: json\n",
		cluster.Options{Nodes: 1, GPUs: 1})
	script := func(edit, mib int) string {
		return fmt.Sprintf("#!/bin/sh\n#SBATCH --gres=gpu:1 --time=10\n# edit %d\n"+
			"cuda-process --curve 0:500,1:%d,3:%d\n", edit, mib, mib)
	}
	for k, c := range []struct {
		user, name   string
		edit, mib    int
		profile, why string
	}{
		{"user1", "train", 1, 4000, "7g.40gb", "the first script"},
		{"user1", "train", 2, 4100, "7g.40gb", "one script says nothing"},
		{"user1", "train", 3, 3900, "1g.10gb", "two similar scripts"},
		{"user1", "train", 4, 4050, "1g.5gb", "three similar scripts"},
		{"user1", "other", 4, 4050, "1g.5gb", "the script's own run under another name"},
		{"user1", "train", 5, 9000, "2g.10gb", "the user names the profile"},
		{"user1", "train", 5, 9000, "1g.10gb", "the script's own run"},
		{"user2", "train", 4, 4050, "7g.40gb", "another user"},
	} {
		path := s.write(c.user, fmt.Sprint("edit", k), script(c.edit, c.mib))
		option := "--mig=auto"
		if k == 5 {
			option = "--mig=2g.10gb"
		}
		id := strings.TrimSpace(s.must(c.user, "sbatch", "--parsable", option, "-J", c.name, "-o", "/dev/null", path))
		s.until("", "squeue", "-h")
		s.until("COMPLETED", "sacct", "-X", "-n", "-P", "-j", id, "-o", "State")
		if got := s.profile(id); got != c.profile {
			t.Errorf("run %d got %s, want %s: %s\n%s", k, got, c.profile, c.why,
				s.must("root", "cat", "/etc/caelum/decisions"))
		}
		s.until("1", "sh", "-c", "sacct -X -n -P -j "+id+" -o AdminComment | grep -c caelum:run=")
		s.on("", "caelum", "repo", "sync")
		s.on("", "caelum", "repo", "decisions")
	}
}
