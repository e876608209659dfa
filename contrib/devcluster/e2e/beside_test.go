//go:build e2e

package e2e

import (
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// TestBesideAWaitingJob checks that jobs start on offered slices of a node that slurmctld's backfill would otherwise
// keep for a waiting job: a 7g.40gb waits for the one in use, and two 1g.5gb that may last longer fit beside the
// 4g.20gb. The waiting job must start as soon as the 7g.40gb has ended.
func TestBesideAWaitingJob(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 2})
	run := func(r row) bool { return r.state == "RUNNING" }
	submit := func(profile, minutes string) string {
		return s.submit(t, "sleep 300", "--gres=mig:"+profile+":1", "-t", minutes)
	}
	first, half := submit("7g.40gb", "30"), submit("4g.20gb", "30")
	s.until(t, first, "the job runs", run)
	s.until(t, half, "the job runs", run)
	waiting := submit("7g.40gb", "30")
	for _, id := range []string{submit("1g.5gb", "60"), submit("1g.5gb", "60")} {
		s.until(t, id, "the job runs beside the waiting one", run)
	}
	s.must(t, "", user, "scancel", first)
	s.until(t, waiting, "the waiting job runs", run)
}
