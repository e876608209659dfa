package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// munged emulates the munge daemons of a cluster.
type munged struct {
	made    map[string]made // by credential
	decoded int             // number of attempts to decode
	down    bool
}

type made struct {
	payload []byte
	by, to  uint32
}

// client is a process of a user that calls munged.
type client struct {
	*munged
	uid uint32
}

func (c client) Encode(payload []byte, to uint32) (string, error) {
	if c.down {
		return "", errors.New("munged does not respond")
	}
	credential := fmt.Sprintf("MUNGE:AwQFAA%d:", len(c.made))
	c.made[credential] = made{payload, c.uid, to}
	return credential, nil
}

func (c client) Decode(credential string) ([]byte, uint32, error) {
	c.decoded++
	m, ok := c.made[credential]
	switch {
	case c.down:
		return nil, 0, errors.New("munged does not respond")
	case !ok:
		return nil, 0, errors.New("unmunge failed: invalid credential")
	case m.to != c.uid:
		return nil, 0, errors.New("unmunge failed: unauthorized credential")
	}
	return m.payload, m.by, nil
}

// The users and the notification port of the emulated cluster.
const (
	slurmUser  = 64030
	user       = 20001
	notifyPort = 6873
)

// agentOf returns the acceptor of an agent that started a minute ago.
func agentOf(m *munged) *acceptor {
	auth := Auth{Munge: client{m, 0}, Receiver: slurmUser, Senders: []uint32{0, slurmUser}}
	return newAcceptor(&Listener{Auth: auth, Name: "n1", Port: notifyPort, Hosts: hosts}, aged(time.Minute))
}

// watcherAs returns a sender that claims to be the watcher and runs as the given user. Its credentials are for the user
// to.
func watcherAs(m *munged, uid, to uint32) *Sender {
	return &Sender{Name: "watcher/ctl", Auth: Auth{Munge: client{m, uid}, Receiver: to}}
}

// sealed returns the next notification of a sender.
func sealed(t *testing.T, s *Sender) []byte {
	t.Helper()
	data, err := s.seal(datagram{to: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// home is the first watcher's notification port, and stranger a port that a user could have opened on its host.
var (
	home     = netip.MustParseAddrPort("127.0.0.1:6873")
	stranger = netip.MustParseAddrPort("127.0.0.1:40000")
	other    = netip.MustParseAddrPort("127.0.0.2:6873") // the notification port of the second watcher
)

// TestAcceptMunge checks which datagrams an agent accepts without a key file. Some of the rejected datagrams contain
// genuine credentials of users, or credentials of the watcher.
func TestAcceptMunge(t *testing.T) {
	m := &munged{made: map[string]made{}}
	a, watcher := agentOf(m), watcherAs(m, slurmUser, 0)
	first := sealed(t, watcher)
	genuine, inner := split(first)
	other, err := client{m, slurmUser}.Encode([]byte("a credential of slurmctld"), 0)
	if err != nil {
		t.Fatal(err)
	}
	with := func(credential string, rest []byte) []byte {
		return append([]byte(mungePrefix+credential+"\n"), rest...)
	}
	for _, c := range []struct {
		what, reason string
		from         netip.AddrPort
		data         []byte
	}{
		{"empty", "no munge credential", home, nil},
		{"garbage", "no munge credential", home, []byte(mungePrefix + "MUNGE:")},
		{"too long", "no munge credential", home, with(genuine, make([]byte, maxLength))},
		{"sealed with a key", "no munge credential", home, key.seal(datagram{at: 1, from: "watcher/ctl", to: "n1"})},
		{"a forged credential", "invalid credential", home, with("MUNGE:AwQFAAAA:", inner)},
		{"a blank credential", "malformed or compressed", home, with(" ", inner)},
		{"a zero byte", "malformed or compressed", home, with("\x00", inner)},
		{"two credentials", "malformed or compressed", home, with(genuine+" "+genuine, inner)},
		{"compressed with bzlib", "malformed or compressed", home, with("MUNGE:AwQFAgAA:", inner)},
		{"compressed with zlib", "malformed or compressed", home, with("MUNGE:AwQFAwAA:", inner)},
		{"no known compression", "malformed or compressed", home, with("MUNGE:AwQFEAAA:", inner)},
		{"more than a datagram", "malformed or compressed", home,
			with(genuine[:12]+strings.Repeat("A", 1000)+":", inner)},
		{"a user's credential", "belongs to user 20001", home, sealed(t, watcherAs(m, user, 0))},
		{"for another user", "unauthorized", home, sealed(t, watcherAs(m, slurmUser, user))},
		{"with another purpose", "not created for a notification", home, with(other, inner)},
		{"a captured credential", "the MAC is wrong", home,
			with(genuine, key.seal(datagram{at: time.Now().UnixNano(), from: "watcher/ctl", to: "n1"}))},
		{"from another address", "address of", netip.MustParseAddrPort("192.0.2.9:6873"), first},
		{"valid", "", home, first},
		{"the same datagram again", "not newer", home, first},
		{"the next datagram, from another port", "", stranger, sealed(t, watcher)},
		{"after a restart of the sender", "", home, sealed(t, watcherAs(m, slurmUser, 0))},
		{"as root, from another port", "", stranger, sealed(t, watcherAs(m, 0, 0))},
	} {
		clear(a.each) // TestMungeFlood checks the limits
		_, reason := a.accept(t.Context(), c.data, c.from, time.Now())
		if (reason == "") != (c.reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %q, want %q", c.what, reason, c.reason)
		}
	}
	if _, reason := agentOf(m).accept(t.Context(), sealed(t, watcher), home, time.Now()); reason != "" {
		t.Errorf("after a restart of the agent: %q", reason)
	}
}

// TestMungeFlood checks that forged datagrams cause few decodings. A user's flood must not keep out a new sender, and a
// flood from the sender's port must not keep out a sender whose credential the receiver knows, or a new one on another
// host.
func TestMungeFlood(t *testing.T) {
	m := &munged{made: map[string]made{}}
	a, watcher := agentOf(m), watcherAs(m, slurmUser, 0)
	now := time.Now()
	if _, reason := a.accept(t.Context(), sealed(t, watcher), home, now); reason != "" || m.decoded != 1 {
		t.Fatalf("%q, %d decodings", reason, m.decoded)
	}
	flood := func(what string, from netip.AddrPort, most int) {
		t.Helper()
		m.decoded = 0
		for k := range 10 * decodeBurst {
			forged := datagram{at: now.Add(time.Second).UnixNano() + int64(k), from: "watcher/ctl", to: "n1"}
			data := fmt.Appendf(nil, "%sMUNGE:AwQFAAforged%d:\n%s", mungePrefix, k, key.seal(forged))
			if _, reason := a.accept(t.Context(), data, from, now); reason == "" {
				t.Fatalf("%s: a forged datagram was accepted", what)
			}
		}
		if m.decoded > most {
			t.Errorf("%s: %d decodings, want at most %d", what, m.decoded, most)
		}
	}
	flood("from a user", stranger, strangerBurst)
	watcher = watcherAs(m, slurmUser, 0)
	if _, reason := a.accept(t.Context(), sealed(t, watcher), home, now); reason != "" {
		t.Errorf("during the user's flood, the new watcher's datagram was rejected: %q", reason)
	}
	flood("from the sender's address and port", home, addressBurst-1) // one decoding was for the new watcher
	if m.decoded == 0 {
		t.Error("the flood did not reach munge")
	}
	if _, reason := a.accept(t.Context(), sealed(t, watcher), home, time.Now()); reason != "" {
		t.Errorf("during the other flood, the watcher's datagram was rejected: %q", reason)
	}
	second := watcherAs(m, slurmUser, 0)
	second.Name = "watcher/second"
	if _, reason := a.accept(t.Context(), sealed(t, second), other, now); reason != "" {
		t.Errorf("during a flood from another host, the second watcher's datagram was rejected: %q", reason)
	}
	m.decoded = 0
	for k := range 2 * decodeBurst {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(k)}), notifyPort)
		a.decode(fmt.Sprint("forged", k), from, now)
	}
	if m.decoded > decodeBurst {
		t.Errorf("%d decodings for many hosts", m.decoded)
	}
	for k := range maxAddresses + 1 {
		a.ofAddress(netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)}))
	}
	if n := len(a.each); n > maxAddresses {
		t.Errorf("the decodings of %d addresses are counted", n)
	}
}

// TestMungedRestart checks that established senders and receivers continue while munged is down, until the credential
// expires, and that new ones continue once it is back.
func TestMungedRestart(t *testing.T) {
	m := &munged{made: map[string]made{}}
	a, watcher := agentOf(m), watcherAs(m, slurmUser, 0)
	accept := func(what, want string, data []byte) {
		t.Helper()
		_, reason := a.accept(t.Context(), data, home, time.Now())
		if (reason == "") != (want == "") || !strings.Contains(reason, want) {
			t.Errorf("%s: %q, want %q", what, reason, want)
		}
	}
	accept("before", "", sealed(t, watcher))
	m.down = true
	accept("down", "", sealed(t, watcher))
	watcher.own.at = time.Now().Add(-renewal)
	accept("down, and the session is due for renewal", "", sealed(t, watcher))
	if _, err := watcherAs(m, slurmUser, 0).seal(datagram{to: "n1"}); err == nil {
		t.Error("a new sender sent a datagram while munged was down")
	}
	watcher.own.at = time.Now().Add(-credentialTTL)
	if _, err := watcher.seal(datagram{to: "n1"}); err == nil {
		t.Error("the sender used an expired credential")
	}
	m.down = false
	before := watcher.own.credential
	renewed := sealed(t, watcher)
	if watcher.own.credential == before {
		t.Error("the sender did not renew its session")
	}
	m.down = true
	accept("the receiver cannot decode the new credential", "does not respond", renewed)
	m.down = false
	accept("after", "", renewed)
	s := a.sessions["watcher/ctl"]
	s.at = time.Now().Add(-credentialTTL)
	a.sessions["watcher/ctl"] = s
	m.decoded = 0
	clear(a.each)
	accept("an old session", "", sealed(t, watcher))
	if m.decoded != 1 {
		t.Errorf("%d decodings of the credential of an old session", m.decoded)
	}
}

// TestSendFromNotifyPort checks that a sender uses the socket of its host's listener while the listener runs.
func TestSendFromNotifyPort(t *testing.T) {
	receiver, err := net.ListenPacket("udp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	receiver.SetReadDeadline(time.Now().Add(20 * time.Second))
	m := &munged{made: map[string]made{}}
	at, sender := port(t), watcherAs(m, slurmUser, 0)
	sent := func() int {
		t.Helper()
		err := sender.Send("n1", "127.0.0.2", receiver.LocalAddr().(*net.UDPAddr).Port)
		if err != nil {
			t.Fatal(err)
		}
		_, from, err := receiver.ReadFrom(make([]byte, maxLength))
		if err != nil {
			t.Fatal(err)
		}
		return from.(*net.UDPAddr).Port
	}
	ctx, stop := context.WithCancel(t.Context())
	listening, done := make(chan bool), make(chan error)
	l := Listener{Auth: Auth{Munge: client{m, slurmUser}}, Name: Watcher, Address: "127.0.0.1", Port: at,
		Sender: sender, Listening: func() { close(listening) }}
	go func() { done <- l.Listen(ctx, nil) }()
	<-listening
	if got := sent(); got != at {
		t.Errorf("the source port is %d, want %d", got, at)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := sent(); got == at {
		t.Error("the source port is the wake port, which is closed")
	}
}

// TestAuth checks what authenticates datagrams: the key file if it exists, even if it is invalid, and otherwise munge
// if Slurm uses it.
func TestAuth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.key")
	c := slurm.Config{Values: map[string]string{
		"AuthType": "auth/munge", "AuthInfo": "cred_expire=5,socket=/run/m", "SlurmUser": "slurm(64030)",
	}}
	a, err := AgentAuth(path, c)
	if m, ok := a.Munge.(*Munge); err != nil || !ok || m.Socket != "/run/m" || a.Receiver != 64030 ||
		fmt.Sprint(a.Senders) != "[0 64030]" {
		t.Errorf("agent: %+v, %v", a, err)
	}
	a, err = WatcherAuth(path, c)
	if err != nil || a.Munge == nil || a.Receiver != 0 || fmt.Sprint(a.Senders) != "[0]" {
		t.Errorf("watcher: %+v, %v", a, err)
	}
	delete(c.Values, "SlurmUser")
	if _, err := AgentAuth(path, c); err == nil {
		t.Error("an agent that does not know SlurmUser uses munge")
	}
	c.Values["AuthType"] = "auth/slurm"
	_, err = WatcherAuth(path, c)
	if err == nil || !strings.Contains(err.Error(), "head -c 32 /dev/urandom >"+path) {
		t.Errorf("auth/slurm: %v", err)
	}
	if err := os.WriteFile(path, key, 0o400); err != nil {
		t.Fatal(err)
	}
	if a, err := AgentAuth(path, c); err != nil || string(a.Key) != string(key) || a.Munge != nil {
		t.Errorf("with a key file: %+v, %v", a, err)
	}
	os.Chmod(path, 0o404)
	c.Values["AuthType"] = "auth/munge"
	if _, err := WatcherAuth(path, c); err == nil {
		t.Error("munge is used although there is an invalid key file")
	}
}

// BenchmarkLatency measures the time from sending a datagram to its acceptance on the same host, with a key and with
// the host's munged.
func BenchmarkLatency(b *testing.B) {
	uid := uint32(os.Geteuid())
	for _, auth := range []struct {
		name string
		Auth
	}{
		{"key", Auth{Key: key}}, {"munge", Auth{Munge: &Munge{}, Receiver: uid, Senders: []uint32{uid}}},
	} {
		b.Run(auth.name, func(b *testing.B) {
			accepted := make(chan bool, 1)
			sender := &Sender{Name: "watcher/ctl", Auth: auth.Auth}
			l := Listener{Auth: auth.Auth, Name: "n1", Address: "127.0.0.1", Port: port(b), Sender: sender,
				Hosts:     hosts,
				Confirmed: func(string, time.Time) { accepted <- true },
				Refused:   func(_ int, _ netip.AddrPort, reason string) { b.Error(reason) }}
			listening := make(chan bool)
			l.Listening = func() { close(listening) }
			go l.Listen(b.Context(), nil)
			<-listening
			began := time.Now()
			send := func() {
				if err := sender.Confirm("n1", "127.0.0.1", l.Port, "text"); err != nil {
					b.Skip(err)
				}
				<-accepted
			}
			send()
			first := time.Since(began)
			for b.Loop() {
				send()
			}
			b.ReportMetric(float64(first.Microseconds()), "µs-for-the-first") // with munge, it creates the session
		})
	}
}
