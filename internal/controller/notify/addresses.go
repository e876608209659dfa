package notify

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// addresses looks up the addresses of hosts. It keeps each result for about lookupAge, because every agent receives
// confirmations every few seconds. The zero value is ready for use.
type addresses struct {
	mu    sync.Mutex
	known map[string]lookedUp
}

type lookedUp struct {
	all      []netip.Addr
	err      error
	at       time.Time
	renewing bool // a lookup in the background is running (latest)
}

const (
	lookupAge     = time.Minute     // the time for which the result of a lookup is kept
	lookupTimeout = 2 * time.Second // time limit for looking up a host's addresses
)

// of returns the addresses of a host from a lookup that is at most 1.5 times age old. If a new lookup fails, the
// addresses from the last one remain valid, so that a name server that does not respond does not delay every datagram.
func (a *addresses) of(ctx context.Context, host string, age time.Duration) ([]netip.Addr, error) {
	a.mu.Lock()
	last, ok := a.known[host]
	a.mu.Unlock()
	if ok && time.Since(last.at) < age/2+rand.N(age) { // random, so that not all hosts are looked up at the same time
		return last.all, last.err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	if err != nil && len(last.all) > 0 {
		found, err = last.all, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[string]lookedUp{}
	}
	a.known[host] = lookedUp{all: found, err: err, at: time.Now()}
	return found, err
}

// latest returns the addresses of a host from the last lookup that found any. If they are old, it starts another lookup
// in the background. Only the first lookup of a host therefore delays the caller.
func (a *addresses) latest(host string) ([]netip.Addr, error) {
	a.mu.Lock()
	last := a.known[host]
	renew := len(last.all) > 0 && !last.renewing && time.Since(last.at) >= lookupAge/2+rand.N(lookupAge)
	if renew {
		last.renewing = true
		a.known[host] = last
	}
	a.mu.Unlock()
	switch {
	case len(last.all) == 0:
		return a.of(context.Background(), host, lookupAge)
	case renew:
		go a.of(context.Background(), host, 1)
	}
	return last.all, nil
}
