//go:build e2e

package e2eattacks

import (
	"regexp"
	"strconv"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

var rpc = regexp.MustCompile(`(?m)^\s+(?:REQUEST|MESSAGE)_\S+\s+\(\s*\d+\) count:(\d+)`)

// TestDatagrams checks that empty and well-formed datagrams from a user to the wake ports of the
// agent and the watcher cause no requests to slurmctld. TestWatcher checks the effect of the
// watcher's own datagrams.
func TestDatagrams(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: "../e2e_faults/testdata/watched.yaml"})
	s.Within("the agent has published", func() bool {
		status, err := s.Status("n1")
		return err == nil && status.PublishedAt > 0 && status.PublishError == ""
	})
	s.Must("", "root", "sdiag", "--reset")
	s.Must("", attacker, "bash", "-c", `
for i in {1..50}; do
    for host in 127.0.1.1 127.0.0.1; do
        printf '' >/dev/udp/$host/6873
        printf 'caelum-wake 1\n%08d%s\0%s%032d' "$i" watcher/ctl n1 0 >/dev/udp/$host/6873
        printf 'caelum-wake 1\n%08d%s\0%s%032d' "$i" n1 watcher/ 0 >/dev/udp/$host/6873
    done
    sleep 0.1
done`)
	requests := 0
	for _, m := range rpc.FindAllStringSubmatch(s.Must("", "root", "sdiag"), -1) {
		n, _ := strconv.Atoi(m[1])
		requests += n
	}
	// Once a minute, the agent compares its state with slurmctld's. This needs about ten requests, and may happen
	// during the test.
	if requests > 40 {
		t.Errorf("300 datagrams of a user caused %d requests to slurmctld", requests)
	}
	t.Logf("slurmctld received %d requests", requests)
}
