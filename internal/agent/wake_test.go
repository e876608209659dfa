package agent

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"
)

// freePort is a UDP port of loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// A datagram, whatever is in it, makes the agent look at the queue.
func TestWoken(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	a := w.current()
	a.cfg.WakeAddress, a.cfg.WakePort = "127.0.0.1", freePort(t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.listen(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })

	send := func(data string) {
		conn, err := net.Dial("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.cfg.WakePort)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte(data))
	}
	w.submit(job(1, "7g.40gb:1")) // not on offer beside the others
	if n := w.offers()["7g.40gb"]; n != 0 {
		t.Fatalf("%d of 7g.40gb are on offer already", n)
	}
	for range 2000 {
		send("rm -rf /") // the first may come before the agent listens
		if w.offers()["7g.40gb"] == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := w.offers()["7g.40gb"]; n != 1 {
		t.Fatalf("%d of 7g.40gb are on offer", n)
	}
}
