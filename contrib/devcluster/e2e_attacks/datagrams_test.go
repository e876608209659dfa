//go:build e2e

package e2eattacks

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

var rpc = regexp.MustCompile(`(?m)^\s+(?:REQUEST|MESSAGE)_\S+\s+\(\s*\d+\) count:(\d+)`)

// TestDatagrams checks that empty and well-formed datagrams from a user to the notification ports of the
// agent and the watcher cause no requests to slurmctld. TestWatcher checks the effect of the
// watcher's own datagrams.
func TestDatagrams(t *testing.T) { datagrams(t, "watched.yaml") }

// TestDatagramsWithKey is like TestDatagrams, but with a key file instead of munge.
func TestDatagramsWithKey(t *testing.T) { datagrams(t, "keyed.yaml") }

func datagrams(t *testing.T, config string) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: "../e2e_faults/testdata/" + config})
	published(s)
	s.Must("", "root", "sdiag", "--reset")
	s.Must("", attacker, "bash", "-c", `
for i in {1..50}; do
    for host in 127.0.1.1 127.0.0.1; do
        printf '' >/dev/udp/$host/6873
        for head in 'caelum-wake 1\n' 'caelum-wake 2\nMUNGE:AwQFAA==:\ncaelum-wake 1\n'; do
            printf "$head"'%08d%s\0%s%032d' "$i" watcher/ctl n1 0 >/dev/udp/$host/6873
            printf "$head"'%08d%s\0%s%032d' "$i" n1 watcher/ 0 >/dev/udp/$host/6873
        done
    done
    sleep 0.1
done`)
	// Once a minute, the agent compares its state with slurmctld's. This needs about ten requests, and may happen
	// during the test.
	n := requests(s)
	if n > 40 {
		t.Errorf("500 datagrams of a user caused %d requests to slurmctld", n)
	}
	t.Logf("slurmctld received %d requests", n)
}

func published(s *clustertest.Site) {
	s.Within("the agent has published", func() bool {
		status, err := s.Status("n1")
		return err == nil && status.PublishedAt > 0 && status.PublishError == ""
	})
}

// requests returns the number of requests that slurmctld has received since `sdiag --reset`.
func requests(s *clustertest.Site) (n int) {
	for _, m := range rpc.FindAllStringSubmatch(s.Must("", "root", "sdiag"), -1) {
		k, _ := strconv.Atoi(m[1])
		n += k
	}
	return n
}

// notification is a program that sends notifications to the agent of n1 as the watcher does. Its arguments are the
// source port, the user who can decode its munge credential, and the number of datagrams. If the number is negative,
// each datagram has another forged credential.
const notification = `
import hmac, os, socket, struct, subprocess, sys, time
port, uid, count = map(int, sys.argv[1:])
key = os.urandom(32)
genuine = subprocess.check_output(["munge", "--restrict-uid=%d" % uid], input=b"caelum-wake 2\n" + key).strip()
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("127.0.0.1", port))
for i in range(abs(count)):
    body = b"caelum-wake 1\n" + struct.pack(">Q", time.time_ns()) + b"watcher/ctl\0n1"
    credential = genuine if count > 0 else b"MUNGE:AwQFAA%08d:" % i
    sock.sendto(b"caelum-wake 2\n" + credential + b"\n" + body + hmac.new(key, body, "sha256").digest(),
        ("127.0.1.1", 6873))
`

// TestForeignCredentials checks that an agent rejects the genuine munge credentials of other users and credentials that
// only another user can decode, and that floods of datagrams from users take little CPU time. SlurmUser is root
// in this cluster, so root's notifications are valid.
func TestForeignCredentials(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: "../e2e_faults/testdata/watched.yaml"})
	published(s)
	send := func(user, port, uid, count string) string {
		return s.Must("", user, "python3", "-c", notification, port, uid, count)
	}
	refused := func(what, reason, user, port, uid string) {
		t.Helper()
		// The agent logs the first rejected datagram after its start, and then at most one a minute.
		if err := s.RestartUnit("agent-n1"); err != nil {
			t.Fatal(err)
		}
		published(s)
		s.Within(what, func() bool {
			send(user, port, uid, "1")
			log, err := s.Log("agent-n1")
			return err == nil && strings.Contains(log[strings.LastIndex(log, `"msg":"ready"`):], reason)
		})
	}
	refused("a credential of a user", "belongs to user 20001", attacker, "0", "0")
	forge(t, s, "from another port", func() { send(attacker, "0", "0", "-100000") })
	if err := s.StopUnit("watcher"); err != nil {
		t.Fatal(err)
	}
	refused("a credential of a user from the watcher's port", "belongs to user 20001", attacker, "6873", "0")
	refused("a credential for another user", "Unauthorized credential", "root", "6873", "20001")

	s.Must("", "root", "sdiag", "--reset")
	s.Within("a notification of root is accepted", func() bool {
		send("root", "6873", "0", "1")
		return requests(s) > 0
	})
	forge(t, s, "from the watcher's port", func() { send(attacker, "6873", "0", "-100000") })
	s.Must("", "root", "sdiag", "--reset")
	s.Within("a notification of root is accepted after the flood", func() bool {
		send("root", "6873", "0", "1")
		return requests(s) > 0
	})
}

// forge checks that forged datagrams cost the agent of n1 little CPU time.
func forge(t *testing.T, s *clustertest.Site, what string, send func()) {
	t.Helper()
	before, began := cpu(s), time.Now()
	send()
	spent := cpu(s) - before
	t.Logf("%s, 100,000 forged datagrams in %.1f s cost the agent and unmunge %.1f s of CPU time", what,
		time.Since(began).Seconds(), spent)
	if spent > 20 {
		t.Errorf("%s, a flood of 100,000 datagrams cost %.1f s of CPU time", what, spent)
	}
}

// cpu returns the CPU time of the agent of n1 and of the programs that it has run, in seconds.
func cpu(s *clustertest.Site) float64 {
	pid := strings.Fields(s.Must("", "root", "cat", "/run/devcluster/units/agent-n1.pid"))[0]
	line := s.Must("", "root", "cat", "/proc/"+pid+"/stat")
	ticks := 0.0
	for _, field := range strings.Fields(line[strings.LastIndex(line, ")")+1:])[11:15] { // utime to cstime
		n, _ := strconv.ParseFloat(field, 64)
		ticks += n
	}
	return ticks / 100
}
