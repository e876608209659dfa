//go:build e2e

package e2eattacks

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestFloodOfOptions checks a submission with 100,000 variables of SPANK plugins. Because job_submit.lua runs while
// slurmctld holds its locks, and would need seconds to parse a million variables, it must reject the job because of
// their number. (On a slow machine, slurmctld does not receive a million variables in time, and closes the connection.)
func TestFloodOfOptions(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	client := buildClient(t, s)
	s.Must("", attacker, client, "flood", "100")
	out, stderr, err := s.Exec(t.Context(), attacker, client, "flood", "100000")
	if err == nil || !strings.Contains(stderr, "more than 256 variables") {
		t.Errorf("%s%s%v", out, stderr, err)
	}
	s.Completed(s.Submit("true", "--gres=gpu:1"))
}
