package agent

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/controller/notify"
)

// freePort returns a UDP port of the loopback interface that no program uses.
func freePort(t testing.TB) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// listening makes the agent listen on its notification port, with the given key unless it is empty. It returns a sender
// that plays the watcher's part.
func listening(t *testing.T, w *world, key notify.Key) *notify.Sender {
	return listeningOn(t, w, key, freePort(t))
}

// listeningOn is like listening, but on the given port.
func listeningOn(t *testing.T, w *world, key notify.Key, port int) *notify.Sender {
	a := w.current()
	a.cfg.NotifyAddress, a.cfg.NotifyPort = "127.0.0.1", port
	a.cfg.NotifyKey = filepath.Join(t.TempDir(), "wake.key")
	if key != nil {
		if err := os.WriteFile(a.cfg.NotifyKey, key, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.listen(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return &notify.Sender{Auth: notify.Auth{Key: key}, Name: notify.Watcher + "ctl", Address: "127.0.0.1"}
}

// TestNotified checks that the agent publishes after a datagram from the watcher, but not after other datagrams.
func TestNotified(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.fake.SetConfig("SlurmctldHost[0]", "ctl(127.0.0.1)")
	w.publish()
	key := notify.Key(strings.Repeat("k", 32))
	watcher := listening(t, w, key)
	a := w.current()
	w.submit(job(1, "7g.40gb:1")) // the current offers do not include this profile
	if n := w.offers()["7g.40gb"]; n != 0 {
		t.Fatalf("%d of 7g.40gb are on offer already", n)
	}
	for a.sender.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	for _, other := range []*notify.Sender{
		{Auth: notify.Auth{Key: notify.Key(strings.Repeat("l", 32))}, Name: watcher.Name, Address: "127.0.0.1"},
		{Auth: notify.Auth{Key: key}, Name: "n2", Address: "127.0.0.1"},
		{Auth: notify.Auth{Key: key}, Name: watcher.Name, Address: "127.0.0.7"},
	} {
		for range 20 {
			other.Send(a.cfg.Node, "127.0.0.1", a.cfg.NotifyPort)
			time.Sleep(5 * time.Millisecond)
		}
		if n := w.offers()["7g.40gb"]; n != 0 {
			t.Fatalf("%s from %s was answered", other.Name, other.Address)
		}
	}
	for range 2000 {
		watcher.Send(a.cfg.Node, "127.0.0.1", a.cfg.NotifyPort) // the agent may not listen yet
		if w.offers()["7g.40gb"] == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := w.offers()["7g.40gb"]; n != 1 {
		t.Fatalf("%d of 7g.40gb are on offer", n)
	}
}

// TestNotifyPortInUse checks that an agent whose notification port is in use says so, and opens the port once it is
// free.
func TestNotifyPortInUse(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.fake.SetConfig("SlurmctldHost[0]", "ctl(127.0.0.1)")
	w.publish()
	port := freePort(t)
	other, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	key := notify.Key(strings.Repeat("k", 32))
	listeningOn(t, w, key, port)
	says := func(want bool) {
		t.Helper()
		for range 3000 {
			if s, _ := w.current().Status(t.Context()); (s.Deaf != "") == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the status does not say %v", want)
	}
	says(true)
	other.Close()
	says(false)
}

// TestNoNotifyKey checks that, without a key file, the agent does not open the port and logs the command that creates a
// key.
func TestNoNotifyKey(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	a := w.current()
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	a.log = log.WithField("", "")
	a.cfg.NotifyAddress, a.cfg.NotifyPort = "127.0.0.1", freePort(t)
	a.cfg.NotifyKey = filepath.Join(t.TempDir(), "wake.key")
	a.listen(t.Context()) // returns without waiting
	for _, want := range []string{"the wake port was not opened", "head -c 32 /dev/urandom >" + a.cfg.NotifyKey} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log has no %q: %s", want, out.String())
		}
	}
	a.notifyWatcher()
}
