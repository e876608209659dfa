package watch

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"caelum/internal/controller/notify"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// queue emulates a slurmctld with one node and a queue that the test changes.
type queue struct {
	mu      sync.Mutex
	node    slurm.Node
	waiting []slurm.Waiting
	fails   bool
	hangs   time.Duration // the delay of each answer
	reads   int
}

func (q *queue) Nodes(context.Context) ([]slurm.Node, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reads++
	time.Sleep(q.hangs)
	if q.fails {
		return nil, errors.New("away")
	}
	return []slurm.Node{q.node}, nil
}

func (q *queue) Queue(context.Context) (slurm.Queue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slurm.Queue{Waiting: q.waiting}, nil
}

func (q *queue) Node(context.Context, string) (slurm.Node, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.node, nil
}

func (q *queue) Config(context.Context) (slurm.Config, error) { return slurm.Config{}, nil }

func (q *queue) HideNode(context.Context, string) error { return nil }

func (q *queue) SetNodeGRES(_ context.Context, _ string, gres slurm.GRESList) error {
	q.set(func() { q.node.Gres = gres })
	return nil
}

func (q *queue) SetNodeComment(_ context.Context, _, text string) error {
	q.set(func() { q.node.Comment = text })
	return nil
}

func (q *queue) set(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

// agent opens a socket for datagrams, and returns it with its port.
func agent(t *testing.T) (net.PacketConn, int) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, conn.LocalAddr().(*net.UDPAddr).Port
}

func notified(t *testing.T, conn net.PacketConn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var data [1024]byte
	if _, _, err := conn.ReadFrom(data[:]); err != nil {
		t.Fatal(err)
	}
}

func trigger(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("."), 0o600); err != nil {
		t.Fatal(err)
	}
}

var key = notify.Key(strings.Repeat("k", 32))

// run starts a watcher with an interval of an hour, and returns the path of its trigger file.
func run(t *testing.T, q *queue, port int) (path string) {
	dir := t.TempDir()
	path = filepath.Join(dir, "trigger")
	if err := os.WriteFile(filepath.Join(dir, "wake.key"), key, 0o400); err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		cfg := Config{
			TriggerFile:   path,
			NotifyPort:    port,
			NotifyAddress: "127.0.0.2",
			Name:          "ctl",
			NotifyKey:     filepath.Join(dir, "wake.key"),
			Interval:      time.Hour,
			Settings:      plan.Settings{Policy: place.Reach, Tightest: true},
		}
		done <- New(cfg, q, log.WithField("", "")).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for range 2000 {
		q.mu.Lock()
		checked := q.reads > 0
		q.mu.Unlock()
		if checked {
			return path
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the watcher does not read the nodes")
	return ""
}

// TestSubmissionNotifiesAnAgent submits a job, and checks that the watcher notifies the agent whose node can run the
// job.
func TestSubmissionNotifiesAnAgent(t *testing.T) {
	conn, port := agent(t)
	q := &queue{node: settled([]slurm.Node{node(t, "127.0.0.1", "", "mig:closed:28", "")})[0]}
	path := run(t, q, port)
	q.set(func() { q.waiting = []slurm.Waiting{job(t, 1, "mig:7g.40gb:1")} })
	trigger(t, path)
	notified(t, conn)
}

// TestPublicationNotifiesAnAgent sends an agent's datagram after a publication, and checks that the watcher notifies
// an agent whose part of the plan has changed.
func TestPublicationNotifiesAnAgent(t *testing.T) {
	conn, port := agent(t)
	q := &queue{node: settled([]slurm.Node{node(t, "127.0.0.1", "", "mig:closed:28", "")})[0]}
	run(t, q, port)
	q.set(func() { q.waiting = []slurm.Waiting{job(t, 1, "mig:7g.40gb:1")} })
	// The node has this name in the test.
	sender := notify.Sender{Auth: notify.Auth{Key: key}, Name: "127.0.0.1", Address: "127.0.0.1"}
	// The first datagrams may arrive before the watcher listens.
	for range 2000 {
		sender.Send(notify.Watcher, "127.0.0.2", port)
		conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, _, err := conn.ReadFrom(make([]byte, 1024)); err == nil {
			return
		}
	}
	t.Error("the watcher notified no agent")
}

// TestWatcherGoesOn checks that the watcher continues after a failed reading of slurmctld and after the removal of the
// trigger file.
func TestWatcherGoesOn(t *testing.T) {
	conn, port := agent(t)
	q := &queue{node: settled([]slurm.Node{node(t, "127.0.0.1", "", "mig:closed:28", "")})[0], fails: true}
	path := run(t, q, port)
	os.Remove(path)
	q.set(func() { q.waiting, q.fails = []slurm.Waiting{job(t, 1, "mig:7g.40gb:1")}, false })
	notified(t, conn) // the watcher recreates the file at its next attempt
	q.set(func() { q.waiting = []slurm.Waiting{job(t, 2, "mig:1g.10gb:4")} })
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the watcher did not create the trigger file again: %v, %v", info, err)
	}
	trigger(t, path)
	notified(t, conn)
}

// TestSlowReading checks the pause after a slow reading, for example one during which slurmctld was starting. The next
// submission must wait at most maxPause.
func TestSlowReading(t *testing.T) {
	conn, port := agent(t)
	q := &queue{node: settled([]slurm.Node{node(t, "127.0.0.1", "", "mig:closed:28", "")})[0], hangs: 6 * time.Second}
	path := run(t, q, port)
	q.set(func() { q.waiting, q.hangs = []slurm.Waiting{job(t, 1, "mig:7g.40gb:1")}, 0 })
	trigger(t, path)
	notified(t, conn) // notified waits at most 20 s, although four times the duration of the first reading is 24 s
}

// TestPauseAfter checks the pauses after rounds that follow a quiet period, and that continuous rounds take at most
// roundTime of each second.
func TestPauseAfter(t *testing.T) {
	limit := rate.NewLimiter(roundTime, burstTime)
	if got := pauseAfter(40*time.Millisecond, limit); got != 160*time.Millisecond {
		t.Errorf("after the first round: %v", got)
	}
	if got := pauseAfter(10*time.Second, rate.NewLimiter(roundTime, burstTime)); got != maxPause {
		t.Errorf("after a slow round: %v", got)
	}
	for range 11 {
		pauseAfter(40*time.Millisecond, limit)
	}
	if got := pauseAfter(40*time.Millisecond, limit); got < 160*time.Millisecond || got > 400*time.Millisecond {
		t.Errorf("after 520 ms of rounds: %v", got)
	}
	for range 5 {
		pauseAfter(40*time.Millisecond, limit)
	}
	if got := pauseAfter(40*time.Millisecond, limit); got < time.Second || got > maxPause {
		t.Errorf("after 760 ms of rounds: %v", got)
	}
	for range 20 {
		pauseAfter(time.Second, limit)
	}
	if got := limit.Tokens(); got < -burstTime-10 {
		t.Errorf("after slow rounds, %v tokens", got)
	}
}

// TestNoFolder checks that Run returns an error if the trigger file's directory is missing.
func TestNoFolder(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	err := New(
		Config{
			TriggerFile: filepath.Join(t.TempDir(), "no", "trigger"),
			Interval:    time.Hour,
			Settings:    plan.Settings{Policy: place.Reach, Tightest: true},
		},
		&queue{},
		log.WithField("", ""),
	).Run(context.Background())
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestSenders checks that only managed nodes are known senders. On other nodes, users can open the notification port.
func TestSenders(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	for _, managed := range []bool{false, true} {
		q := &queue{node: slurm.Node{Name: "n1", Addr: "10.0.0.7", States: []string{"IDLE"}}}
		if managed {
			q.node = node(t, "n1", "", "mig:closed:28", "")
		}
		file := filepath.Join(t.TempDir(), "poke")
		w := New(Config{Settings: tightestFirst, TriggerFile: file, Interval: time.Minute, Planner: true}, q,
			log.WithField("", ""))
		if _, err := w.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if known := (*w.hosts.Load())["n1"] != ""; known != managed {
			t.Errorf("managed: %v, a known sender: %v", managed, known)
		}
	}
}
