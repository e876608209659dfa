// Package wake sends and accepts datagrams that say "read the queue now" and nothing else: the watcher sends them to
// agents, agents to the watcher. They may be lost.
//
// A datagram carries the sender's name, the receiver's name and a time, under an HMAC-SHA256 with the site's key. A
// receiver accepts it once: if the MAC is right, the receiver is itself, the time is within 30 seconds of its own
// clock, later than its own start and later than that of the last datagram of this sender, and the datagram comes
// from an address of the sender. So a captured datagram is worth nothing after it has arrived, and a forged one costs
// the receiver one MAC. Clocks that differ by more make datagrams useless; agents then poll.
//
// What follows a datagram is limited too: 20 reactions at once and then two a second, with a pause that doubles while
// they change nothing.
package wake

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Watcher is the name under which agents address the watcher. A watcher's own name is Watcher and its host; no node's
// name has a slash.
const Watcher = "watcher/"

const (
	burst      = 20
	every      = 500 * time.Millisecond
	firstPause = 100 * time.Millisecond // after one reaction that changed nothing
	slowdown   = 4                      // a pause is at least this many times what the reaction took
	lookUp     = 2 * time.Second        // for the addresses of a sender
)

// Sender sends datagrams of one sender.
type Sender struct {
	Key     Key
	Name    string
	Address string // to send from; empty: the kernel chooses

	mu   sync.Mutex
	last int64
}

// Send tells the receiver named to, at a host, to read the queue.
func (s *Sender) Send(to, host string, port int) error {
	dialer := net.Dialer{}
	if s.Address != "" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(s.Address)}
	}
	conn, err := dialer.Dial("udp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	s.mu.Lock()
	s.last = max(time.Now().UnixNano(), s.last+1)
	at := s.last
	s.mu.Unlock()
	_, err = conn.Write(s.Key.seal(datagram{at, s.Name, to}))
	return err
}

// Listener accepts datagrams.
type Listener struct {
	Key     Key
	Name    string // the receiver's
	Address string // to listen on; empty: all of this host
	Port    int
	// Hosts returns the names or addresses of a sender's hosts; none for an unknown sender. It is called for
	// datagrams with a right MAC only.
	Hosts func(sender string) []string
	// MaxPause bounds the pause after reactions that change nothing or take long.
	MaxPause time.Duration
	// Refused is told of refused datagrams, at most once a minute: how many since the last call, and of the last one
	// its origin and the reason.
	Refused func(n int, from netip.AddrPort, reason string)
}

// Listen calls react for datagrams until ctx ends. React returns whether it changed anything. Datagrams that come
// while it runs or has to wait are answered by one call more. The error says why Listen cannot begin or go on.
func (l *Listener) Listen(ctx context.Context, react func() (changed bool)) error {
	packets, err := net.ListenPacket("udp", net.JoinHostPort(l.Address, strconv.Itoa(l.Port)))
	if err != nil {
		return err
	}
	conn := packets.(*net.UDPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	woken := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		defer close(woken)
		failed <- l.receive(ctx, conn, woken)
	}()
	limit := rate.NewLimiter(rate.Every(every), burst)
	var pause time.Duration
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-woken:
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

// receive puts a token into woken for each accepted datagram until conn is closed.
func (l *Listener) receive(ctx context.Context, conn *net.UDPConn, woken chan<- struct{}) error {
	a := acceptor{Listener: l, start: time.Now(), last: map[string]int64{}}
	refused, told := 0, time.Time{}
	var data [maxLength + 1]byte
	for {
		n, from, err := conn.ReadFromUDPAddrPort(data[:])
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if reason := a.accept(ctx, data[:n], from.Addr().Unmap(), time.Now()); reason != "" {
			if refused++; time.Since(told) >= time.Minute && l.Refused != nil {
				l.Refused(refused, from, reason)
				refused, told = 0, time.Now()
			}
			continue
		}
		select {
		case woken <- struct{}{}:
		default: // a call is due already
		}
	}
}

// acceptor judges datagrams in the order of their arrival.
type acceptor struct {
	*Listener
	start time.Time
	last  map[string]int64 // by sender: the time in its last accepted datagram
}

// accept returns why a datagram is refused, "" for one that is accepted.
func (a *acceptor) accept(ctx context.Context, data []byte, from netip.Addr, now time.Time) string {
	d, ok := a.Key.open(data)
	at := time.Unix(0, d.at)
	switch {
	case !ok:
		return "its MAC is wrong: the sender has no key, or another one"
	case d.to != a.Name:
		return "it is for " + strconv.Quote(d.to)
	case at.Before(now.Add(-window)) || at.After(now.Add(window)):
		return "its time differs from this host's by more than " + window.String() + ": an old datagram, or a clock is wrong"
	case !at.After(a.start), d.at <= a.last[d.from]:
		return "it is not newer than what was received before"
	case !slices.Contains(a.addresses(ctx, d.from), from):
		return "it does not come from an address of " + strconv.Quote(d.from) +
			": set wake_address there to an address that slurm.conf has"
	}
	a.last[d.from] = d.at
	return ""
}

func (a *acceptor) addresses(ctx context.Context, sender string) (all []netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()
	for _, host := range a.Hosts(sender) {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		for _, address := range found {
			all = append(all, address.Unmap())
		}
	}
	return all
}
