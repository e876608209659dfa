//go:build e2e

package e2eattacks

import (
	"context"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// hangUps repeatedly connects to the agent's socket and closes the connection, until the socket's queue is full.
const hangUps = `
	my $agent = pack_sockaddr_un("/run/caelum/caelumd.sock");
	while (1) {
		socket(my $c, PF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0) or die "socket: $!";
		connect($c, $agent) or last;
	}
	$!{EAGAIN} or die "connect: $!";`

// TestSocketQueue checks that a user who fills the queue of the users' socket cannot block root's calls, such as those
// of the prolog, which have a separate queue. The test suspends the agent, so that it accepts no connections.
func TestSocketQueue(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	s.Must("n1", "root", "caelum", "status") // fails if the agent is not listening
	if err := s.KillUnit("agent-n1", "STOP"); err != nil {
		t.Fatal(err)
	}
	s.Must("n1", attacker, "perl", "-Mstrict", "-MSocket=:DEFAULT,SOCK_NONBLOCK", "-e", hangUps)
	refused := make(chan string, 1)
	go func() {
		// Unlike the prolog, caelum status sends its request only once.
		out, text, err := s.ExecNode(context.WithoutCancel(t.Context()), "n1", "root", "caelum", "status", "--json")
		if err != nil {
			refused <- out + text
		}
		close(refused)
	}()
	select {
	case text := <-refused:
		t.Errorf("root's caelum status ended while the agent was stopped: %s", text)
	case <-time.After(2 * time.Second):
	}
	job := s.Must("", victim, "sbatch", "--parsable", "--gres=gpu:1,mig:1g.5gb:1", "--wrap",
		"cuda-process --exclusive --seconds 0.1")
	if err := s.KillUnit("agent-n1", "CONT"); err != nil {
		t.Fatal(err)
	}
	if text, failed := <-refused; failed {
		t.Errorf("root's caelum status failed: %s", strings.TrimSpace(text))
	}
	s.Completed(job)
	s.NoneDrained()
	s.NothingLeft()
}
