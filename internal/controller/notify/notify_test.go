package notify

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var key = Key(strings.Repeat("k", 32))

// port returns an unused UDP port of the loopback interface.
func port(t testing.TB) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

func hosts(sender string) []string {
	switch sender {
	case "watcher/ctl":
		return []string{"127.0.0.1"}
	case "watcher/second":
		return []string{"127.0.0.2"}
	}
	return nil
}

// aged returns the age of a receiver for newAcceptor.
func aged(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// TestAccept checks which datagrams an agent accepts. It must reject a datagram with any kind of fault.
func TestAccept(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := newAcceptor(&Listener{Auth: Auth{Key: key}, Name: "n1", Hosts: hosts}, aged(20*time.Second))
	at := func(d time.Duration) int64 { return now.Add(d).UnixNano() }
	good := datagram{at: at(0), from: "watcher/ctl", to: "n1"}
	whole := key.seal(good)
	turned := []byte(string(whole))
	turned[len(magic)+7]++
	for _, c := range []struct {
		what, reason, from string
		data               []byte
	}{
		{"empty", "MAC", "127.0.0.1", nil},
		{"garbage", "MAC", "127.0.0.1", []byte("rm -rf /")},
		{"cut short", "MAC", "127.0.0.1", whole[:len(whole)-1]},
		{"too long", "MAC", "127.0.0.1", make([]byte, maxLength+1)},
		{"a changed time", "MAC", "127.0.0.1", turned},
		{"another key", "MAC", "127.0.0.1", Key(strings.Repeat("l", 32)).seal(good)},
		{"for another node", `for "n2"`, "127.0.0.1", key.seal(datagram{at: at(0), from: "watcher/ctl", to: "n2"})},
		{"old", "differs", "127.0.0.1", key.seal(datagram{at: at(-window - 1), from: "watcher/ctl", to: "n1"})},
		{"of the future", "differs", "127.0.0.1",
			key.seal(datagram{at: at(window + 1), from: "watcher/ctl", to: "n1"})},
		{"sent before the receiver started", "not newer", "127.0.0.1",
			key.seal(datagram{at: at(-20 * time.Second), from: "watcher/ctl", to: "n1"})},
		{"an unknown sender", "address of", "127.0.0.1", key.seal(datagram{at: at(0), from: "n2", to: "n1"})},
		{"an address that is not the sender's", "address of", "192.0.2.9", whole},
		{"valid", "", "127.0.0.1", whole},
		{"the same datagram again", "not newer", "127.0.0.1", whole},
		{"an earlier datagram", "not newer", "127.0.0.1",
			key.seal(datagram{at: at(-1), from: "watcher/ctl", to: "n1"})},
		{"the next datagram", "", "127.0.0.1", key.seal(datagram{at: at(1), from: "watcher/ctl", to: "n1"})},
	} {
		_, reason := a.accept(t.Context(), c.data, netip.AddrPortFrom(netip.MustParseAddr(c.from), 40000), now)
		if (reason == "") != (c.reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %q, want %q", c.what, reason, c.reason)
		}
	}
}

// TestClockSetBack checks that datagrams are sent and accepted again as soon as the clocks of both hosts are right, if
// both were wrong by an hour before, for example until the first time synchronization after a boot.
func TestClockSetBack(t *testing.T) {
	wrong := time.Unix(1e9, 0)
	age, last := time.Duration(0), int64(0)
	a := newAcceptor(&Listener{Auth: Auth{Key: key}, Name: "n1", Hosts: hosts},
		func() time.Duration { return age })
	for _, c := range []struct {
		step time.Duration // of both clocks
		n    int           // datagrams, one per second
	}{{0, 3}, {-time.Hour, 3}, {-window / 2, 3}, {time.Hour, 3}, {-time.Hour, 3}} {
		wrong = wrong.Add(c.step)
		for range c.n {
			wrong, age = wrong.Add(time.Second), age+time.Second
			last = next(last, wrong)
			d := key.seal(datagram{at: last, from: "watcher/ctl", to: "n1"})
			from := netip.MustParseAddrPort("127.0.0.1:1")
			if _, reason := a.accept(t.Context(), d, from, wrong); reason != "" {
				t.Errorf("after a step of %v: %s", c.step, reason)
			}
			if _, reason := a.accept(t.Context(), d, from, wrong); reason == "" {
				t.Errorf("after a step of %v, the same datagram was accepted again", c.step)
			}
		}
	}
}

// TestAcceptConfirmation checks that a receiver distinguishes confirmations from notifications, and applies the same
// rules to both.
func TestAcceptConfirmation(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := newAcceptor(&Listener{Auth: Auth{Key: key}, Name: "n1", Hosts: hosts}, aged(time.Minute))
	d := datagram{at: now.UnixNano(), from: "watcher/ctl", to: "n1", text: "beat@1 \x00digest"}
	from := netip.MustParseAddrPort("127.0.0.1:40000")
	whole := key.seal(d)
	if got, reason := a.accept(t.Context(), whole, from, now); got.text != d.text || reason != "" {
		t.Errorf("%q, %q", got.text, reason)
	}
	if _, reason := a.accept(t.Context(), whole, from, now); !strings.Contains(reason, "not newer") {
		t.Errorf("the same datagram again: %q", reason)
	}
	d.to = "n2"
	if _, reason := a.accept(t.Context(), key.seal(d), from, now); !strings.Contains(reason, `for "n2"`) {
		t.Errorf("for another node: %q", reason)
	}
	d.at, d.to, d.text = d.at-1, "n1", ""
	if got, reason := a.accept(t.Context(), key.seal(d), from, now); got.text != "" || reason != "" {
		t.Errorf("a notification that the confirmation has overtaken: %q, %q", got.text, reason)
	}
}

// TestConfirm checks that a confirmation reaches Confirmed, and causes no reaction.
func TestConfirm(t *testing.T) {
	at := port(t)
	texts := make(chan string, 100)
	ctx, stop := context.WithCancel(context.Background())
	reactions := 0
	l := Listener{Auth: Auth{Key: key}, Name: "n1", Address: "127.0.0.1", Port: at, Hosts: hosts,
		Confirmed: func(text string, _ time.Time) { texts <- text }}
	done := make(chan error, 1)
	go func() { done <- l.Listen(ctx, func() bool { reactions++; return true }) }()
	sender := &Sender{Auth: Auth{Key: key}, Name: "watcher/ctl", Address: "127.0.0.1"}
	for end := time.Now().Add(20 * time.Second); len(texts) == 0 && time.Now().Before(end); {
		if err := sender.Confirm("n1", "localhost", at, "beat@1 digest"); err != nil {
			t.Log(err) // the receiver may not listen yet
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(texts) == 0 || <-texts != "beat@1 digest" || reactions != 0 {
		t.Errorf("%d confirmations, %d reactions", len(texts), reactions)
	}
}

// run listens until the test ends, and returns the number of reactions and the number of rejected datagrams.
func run(t *testing.T, at int, changes bool) (reactions *atomic.Int32, refused *atomic.Int32) {
	ctx, stop := context.WithCancel(context.Background())
	reactions, refused = new(atomic.Int32), new(atomic.Int32)
	l := Listener{Auth: Auth{Key: key}, Name: "n1", Address: "127.0.0.1", Port: at, Hosts: hosts, MaxPause: time.Hour,
		Refused: func(n int, _ netip.AddrPort, _ string) { refused.Add(int32(n)) }}
	done := make(chan error, 1)
	go func() { done <- l.Listen(ctx, func() bool { reactions.Add(1); return changes }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return reactions, refused
}

// TestListen checks that one datagram causes a reaction, that a thousand datagrams cause far fewer reactions, and that
// Listen reports forged datagrams.
func TestListen(t *testing.T) {
	at := port(t)
	began := time.Now()
	reactions, refused := run(t, at, true)
	sender := &Sender{Auth: Auth{Key: key}, Name: "watcher/ctl", Address: "127.0.0.1"}
	for reactions.Load() == 0 { // several datagrams may be necessary, because the receiver may not listen yet
		if err := sender.Send("n1", "127.0.0.1", at); err != nil {
			t.Log(err)
		}
		time.Sleep(time.Millisecond)
	}
	for range 1000 {
		sender.Send("n1", "127.0.0.1", at)
	}
	time.Sleep(100 * time.Millisecond)
	if n, most := int(reactions.Load()), burst+1+int(time.Since(began)/every); n > most {
		t.Errorf("%d reactions to a thousand datagrams, want at most %d", n, most)
	}
	for end := time.Now().Add(20 * time.Second); refused.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		(&Sender{Auth: Auth{Key: key[1:]}, Name: "watcher/ctl", Address: "127.0.0.1"}).Send("n1", "127.0.0.1", at)
	}
	if refused.Load() == 0 {
		t.Error("Listen reported no forged datagram")
	}
}

// TestPause checks that the pause doubles while nothing changes, and is at least slowdown times the duration of a
// reaction.
func TestPause(t *testing.T) {
	var l Listener
	pause := time.Duration(0)
	for _, c := range []struct {
		changed    bool
		took, want time.Duration
	}{
		{false, 0, firstPause},
		{false, 0, 2 * firstPause},
		{false, time.Second, slowdown * time.Second},
		{false, 0, 2 * slowdown * time.Second},
		{true, time.Second, slowdown * time.Second},
		{true, 0, 0},
		{false, 0, firstPause},
	} {
		if pause = l.nextPause(pause, c.changed, c.took); pause != c.want {
			t.Errorf("%+v: %v", c, pause)
		}
	}
}

// TestBackOff checks that Listen pauses between reactions that change nothing.
func TestBackOff(t *testing.T) {
	at := port(t)
	began := time.Now()
	reactions, _ := run(t, at, false)
	sender := &Sender{Auth: Auth{Key: key}, Name: "watcher/ctl", Address: "127.0.0.1"}
	for end := began.Add(700 * time.Millisecond); time.Now().Before(end) || reactions.Load() == 0; {
		time.Sleep(time.Millisecond)
		sender.Send("n1", "127.0.0.1", at)
	}
	// The reactions are at 0, 100, 300, 700 ms and so on. Without the pauses, Listen would call react 20 times in a
	// burst.
	n, most := int(reactions.Load()), 1
	for at := firstPause; at < time.Since(began); at = 2*at + firstPause {
		most++
	}
	if n > most {
		t.Errorf("%d reactions that changed nothing, want at most %d", n, most)
	}
}

func TestTakenPort(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := Listener{Address: "127.0.0.1", Port: conn.LocalAddr().(*net.UDPAddr).Port}
	if err := l.Listen(context.Background(), nil); err == nil {
		t.Error("no error")
	}
}

// TestReadKey checks that readKey rejects a key file that other users can read or could have written.
func TestReadKey(t *testing.T) {
	me := uint32(os.Geteuid())
	dir := filepath.Join(t.TempDir(), "caelum")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "wake.key")
	read := func(what, want string, owners ...uint32) {
		t.Helper()
		k, err := readKey(path, owners...)
		if want == "" && (err != nil || string(k) != string(key)) {
			t.Errorf("%s: %v", what, err)
		} else if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	read("missing", "head -c 32 /dev/urandom >"+path, me)
	if err := os.WriteFile(path, key, 0o400); err != nil {
		t.Fatal(err)
	}
	read("valid", "", me)
	read("one of two owners", "", me+1, me)
	read("another user's file", "chown", me+1)
	for _, mode := range []os.FileMode{0o440, 0o404, 0o420} {
		os.Chmod(path, mode)
		read(mode.String(), "chmod 400", me)
	}
	os.Chmod(path, 0o400)
	os.Chmod(dir, 0o777)
	read("a directory that others can change", dir+" is writable by group and others; chmod go-w "+dir, me)
	os.Chmod(dir, 0o755)
	link := path
	path += ".link"
	os.Chmod(link, 0o400)
	os.Symlink(link, path)
	read("a link", "symbolic", me)
	os.Remove(path)
	os.WriteFile(path, key[1:], 0o400)
	read("too short", "32 to 4096 bytes", me)
}
