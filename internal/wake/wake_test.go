package wake

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// port is a UDP port of loopback that nobody listens on.
func port(t *testing.T) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// A datagram is answered; a thousand are not answered a thousand times, but by one look more than may follow at once, and none is forgotten.
func TestAnswers(t *testing.T) {
	at := port(t)
	ctx, stop := context.WithCancel(context.Background())
	var looks atomic.Int32
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- Listen(ctx, "127.0.0.1", at, func() { looks.Add(1) }) }()
	for looks.Load() == 0 { // it may not listen yet
		if err := Send("127.0.0.1", at); err != nil {
			t.Log(err)
		}
		time.Sleep(time.Millisecond)
	}
	for range 1000 {
		Send("127.0.0.1", at)
	}
	time.Sleep(100 * time.Millisecond)
	if n, most := int(looks.Load()), burst+1+int(time.Since(began)/every); n > most {
		t.Errorf("%d looks for a thousand datagrams, at most %d may have been by now", n, most)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTakenPort(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := Listen(context.Background(), "127.0.0.1", conn.LocalAddr().(*net.UDPAddr).Port, nil); err == nil {
		t.Error("no error")
	}
}
