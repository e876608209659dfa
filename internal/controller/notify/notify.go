package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Watcher is the watcher's name as a receiver. As a sender, its name is Watcher followed by the name of its host. Node
// names cannot clash with these names, because node names contain no slash.
const Watcher = "watcher/"

const (
	burst      = 20                     // number of reactions without delay
	every      = 500 * time.Millisecond // time per reaction after a burst
	firstPause = 100 * time.Millisecond // pause after the first reaction that changed nothing
	slowdown   = 4                      // minimum pause, as a multiple of the duration of the reaction
)

// Sender sends datagrams under one name.
type Sender struct {
	Auth    Auth
	Name    string
	Address string // the local address; if empty, the kernel chooses the address

	hosts addresses
	conn  atomic.Pointer[net.UDPConn] // the socket of this host's Listener while it listens
	mu    sync.Mutex
	last  int64
	own   session
}

// Send sends a notification to the receiver with the given name, on the given host and port.
func (s *Sender) Send(to, host string, port int) error { return s.send(datagram{to: to}, host, port) }

// Confirm is like Send, but sends a confirmation with the given text, which must not be empty.
func (s *Sender) Confirm(to, host string, port int, text string) error {
	return s.send(datagram{to: to, text: text}, host, port)
}

func (s *Sender) send(d datagram, host string, port int) error {
	data, err := s.seal(d)
	if err != nil {
		return err
	}
	all, err := s.hosts.latest(host)
	for _, address := range all {
		if err = s.write(data, netip.AddrPortFrom(address, uint16(port))); err == nil {
			return nil
		}
	}
	return cmp.Or(err, fmt.Errorf("%s has no address", host))
}

func (s *Sender) seal(d datagram) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = next(s.last, time.Now())
	d.at, d.from = s.last, s.Name
	if s.Auth.Key != nil {
		return s.Auth.Key.seal(d), nil
	}
	if err := s.own.renew(s.Auth); err != nil {
		return nil, err
	}
	return append([]byte(mungePrefix+s.own.credential+"\n"), s.own.key.seal(d)...), nil
}

// next returns the time for a datagram: now, or a later time if the last datagram has the same or, because the clock
// was set back, a later time. After a large step, receivers would reject such a time.
func next(last int64, now time.Time) int64 {
	if last > now.Add(window).UnixNano() {
		last = 0
	}
	return max(now.UnixNano(), last+1)
}

// write sends a datagram from the notification port if this host listens on it, so that receivers can distinguish it
// from a user's. There may be no route to the address.
func (s *Sender) write(data []byte, to netip.AddrPort) error {
	if conn := s.conn.Load(); conn != nil {
		_, err := conn.WriteToUDPAddrPort(data, to)
		return err
	}
	dialer := net.Dialer{}
	if s.Address != "" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(s.Address)}
	}
	conn, err := dialer.Dial("udp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(data)
	return err
}

// Listener receives datagrams on a UDP port and accepts or rejects them.
type Listener struct {
	Auth    Auth
	Name    string // the name of this receiver
	Address string // the local address; if empty, all addresses of this host
	Port    int
	// Sender, if set, sends from this port while Listen runs.
	Sender *Sender
	// Hosts returns the names or addresses of a sender's hosts, or nil for an unknown sender. With a key, it is called
	// only for datagrams with a valid MAC.
	Hosts func(sender string) []string
	// Confirmed is called with the text of each accepted confirmation and the time at which it was sent. It must return
	// quickly. If it is nil, confirmations are ignored.
	Confirmed func(text string, sent time.Time)
	// Listening is called when the port has been opened. It may be nil.
	Listening func()
	// MaxPause limits the pause after reactions that have no effect or take a long time.
	MaxPause time.Duration
	// Refused is called after datagrams were rejected, at most once a minute. n is the number of datagrams rejected
	// since the last call. from is the source of the last rejected datagram, and reason explains why it was rejected.
	Refused func(n int, from netip.AddrPort, reason string)
}

// Listen receives datagrams until ctx is done and calls react after accepting notifications. react reports whether the
// reaction had an effect. All notifications that arrive during a call to react or during a pause together trigger only
// one further call. If Listen cannot start or continue, it returns an error that explains why.
func (l *Listener) Listen(ctx context.Context, react func() (changed bool)) error {
	packets, err := net.ListenPacket("udp", net.JoinHostPort(l.Address, strconv.Itoa(l.Port)))
	if err != nil {
		return err
	}
	conn := packets.(*net.UDPConn)
	if l.Sender != nil {
		l.Sender.conn.Store(conn)
		defer l.Sender.conn.Store(nil)
	}
	if l.Listening != nil {
		l.Listening()
	}
	defer conn.Close() // Listen may be called again
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	notified := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		defer close(notified)
		failed <- l.receive(ctx, conn, notified)
	}()
	limit := rate.NewLimiter(rate.Every(every), burst)
	var pause time.Duration
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-notified:
			if !open {
				return <-failed
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(last.Add(pause))):
		}
		if limit.Wait(ctx) != nil {
			return nil
		}
		began := time.Now()
		changed := react()
		last = time.Now()
		pause = min(l.nextPause(pause, changed, last.Sub(began)), l.MaxPause)
	}
}

func (l *Listener) nextPause(pause time.Duration, changed bool, took time.Duration) time.Duration {
	if changed {
		pause = 0
	} else {
		pause = max(firstPause, 2*pause)
	}
	return max(pause, slowdown*took)
}

// receive reads datagrams until conn is closed and sends to the notified channel after each accepted notification.
// While a call to react is pending, it sends nothing.
func (l *Listener) receive(ctx context.Context, conn *net.UDPConn, notified chan<- struct{}) error {
	start := time.Now()
	a := newAcceptor(l, func() time.Duration { return time.Since(start) })
	refused, reported := 0, time.Time{}
	var data [maxLength + 1]byte
	for {
		n, from, err := conn.ReadFromUDPAddrPort(data[:])
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		d, reason := a.accept(ctx, data[:n], from, time.Now())
		if reason != "" {
			if refused++; time.Since(reported) >= time.Minute && l.Refused != nil {
				l.Refused(refused, from, reason)
				refused, reported = 0, time.Now()
			}
			continue
		}
		if d.text != "" {
			if l.Confirmed != nil {
				l.Confirmed(d.text, time.Unix(0, d.at))
			}
			continue
		}
		select {
		case notified <- struct{}{}:
		default: // a call to react is already pending
		}
	}
}

// acceptor accepts or rejects datagrams in order of arrival.
type acceptor struct {
	*Listener
	age       func() time.Duration // the time since the start, which does not depend on the clock
	last      map[kind]int64       // the time in the last accepted datagram
	hosts     addresses
	sessions  map[string]session           // by sender; without a key
	decodings *rate.Limiter                // the limit on decodings of credentials from notification ports
	each      map[netip.Addr]*rate.Limiter // the same for each address
	strangers *rate.Limiter                // the same for datagrams from other ports
}

func newAcceptor(l *Listener, age func() time.Duration) *acceptor {
	return &acceptor{Listener: l, age: age, last: map[kind]int64{}, sessions: map[string]session{},
		each:      map[netip.Addr]*rate.Limiter{},
		decodings: rate.NewLimiter(rate.Every(decodeEvery), decodeBurst),
		strangers: rate.NewLimiter(rate.Every(strangerEvery), strangerBurst)}
}

// kind distinguishes the notifications and the confirmations of a sender, because they can overtake each other.
type kind struct {
	sender   string
	confirms bool
}

const wrongMAC = "the MAC is wrong: the sender has no key or a different key"

// accept opens a datagram. If it is rejected, reason is not empty.
func (a *acceptor) accept(
	ctx context.Context, data []byte, from netip.AddrPort, now time.Time,
) (d datagram, reason string) {
	var ok bool
	if a.Auth.Key != nil {
		if d, ok = a.Auth.Key.open(data); !ok {
			return d, wrongMAC
		}
		reason = a.check(ctx, d, from.Addr().Unmap(), now, lookupAge, time.Second)
	} else {
		d, reason = a.acceptMunge(ctx, data, from, now)
	}
	if reason == "" {
		a.last[kind{d.from, d.text != ""}] = d.at
	}
	return d, reason
}

// check returns the reason why a datagram is rejected although its MAC is or may be correct, or "". It rejects a
// datagram if its address is not the sender's according to lookups of all the given ages.
func (a *acceptor) check(
	ctx context.Context, d datagram, from netip.Addr, now time.Time, ages ...time.Duration,
) (reason string) {
	at, last := time.Unix(0, d.at), a.last[kind{d.from, d.text != ""}]
	if last > now.Add(window).UnixNano() { // this host's clock was set back
		last = 0
	}
	switch {
	case d.to != a.Name:
		return "the datagram is for " + strconv.Quote(d.to)
	case at.Before(now.Add(-window)) || at.After(now.Add(window)):
		return "the time in the datagram differs from this host's clock by more than " + window.String() +
			": the datagram is old, or a clock is wrong"
	case !at.After(now.Add(-a.age())), d.at <= last:
		return "the datagram is not newer than the sender's last accepted datagram or the start of this daemon"
	case !a.comesFrom(ctx, d.from, from, ages):
		return "the datagram does not come from an address of " + strconv.Quote(d.from) +
			"; set wake_address on that host to an address in slurm.conf"
	}
	return ""
}

// comesFrom reports whether an address belongs to a sender according to a lookup of one of the given ages.
func (a *acceptor) comesFrom(ctx context.Context, sender string, from netip.Addr, ages []time.Duration) bool {
	hosts := a.Hosts(sender)
	for _, age := range ages {
		for _, host := range hosts {
			if found, _ := a.hosts.of(ctx, host, age); slices.Contains(found, from) {
				return true
			}
		}
	}
	return false
}
