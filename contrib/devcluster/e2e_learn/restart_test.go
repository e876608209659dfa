//go:build e2e

package e2elearn

import (
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// TestRestartOfSlurmctld restarts slurmctld after a run's summary has been recorded. slurmctld then overwrites the
// record's text, and the agent must rewrite the summary. Because the agent looks for a restart a minute after slurmctld
// has removed the job from its list, the test sets a short MinJobAge.
func TestRestartOfSlurmctld(t *testing.T) {
	s := start(t, "poll_interval: 1s\nsample_interval: 200ms\nlog_format: json\n",
		cluster.Options{Nodes: 1, GPUs: 1, Conf: []string{"MinJobAge=40"}})
	id := s.submit("--gres=gpu:1", "--wrap=sleep 2")
	comment := func() string {
		return s.must("root", "sacct", "-X", "-n", "-P", "-j", id, "-o", "AdminComment")
	}
	recorded := func() bool { return strings.Contains(comment(), "caelum:run=") }
	within := func(limit time.Duration, what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(limit); !holds(); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("timeout: %s; the record contains %q", what, comment())
			}
		}
	}
	within(time.Minute, "the summary is recorded", recorded)
	within(time.Minute, "the agent has read the summary back", func() bool {
		return !strings.Contains(s.on("n1", "caelum", "status"), "has not recorded")
	})
	if err := s.RestartUnit("slurmctld"); err != nil {
		t.Fatal(err)
	}
	within(30*time.Second, "slurmctld overwrites the record", func() bool { return !recorded() })
	within(4*time.Minute, "the summary is recorded again", recorded)
}
