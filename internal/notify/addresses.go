package notify

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// addresses looks up the addresses of hosts. It keeps each result for lookupAge, because every agent receives
// confirmations every few seconds. The zero value is ready for use.
type addresses struct {
	mu    sync.Mutex
	known map[string]lookedUp
}

type lookedUp struct {
	all   []netip.Addr
	until time.Time
}

const (
	lookupAge     = time.Minute     // the time for which a host's addresses are kept
	lookupTimeout = 2 * time.Second // time limit for looking up a host's addresses
)

// of returns the addresses of a host. A failed lookup is not kept.
func (a *addresses) of(ctx context.Context, host string) ([]netip.Addr, error) {
	a.mu.Lock()
	k, ok := a.known[host]
	a.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[string]lookedUp{}
	}
	a.known[host] = lookedUp{found, time.Now().Add(lookupAge)}
	return found, nil
}
