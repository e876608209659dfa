package notify

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestNameServerHangs checks that a name server that does not respond delays neither a sender that knows an earlier
// address of the host nor its next datagram, and that only one lookup runs.
func TestNameServerHangs(t *testing.T) {
	before := net.DefaultResolver
	ctx, respond := context.WithCancel(t.Context())
	asked := make(chan struct{}, 10)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, errors.New("no name server")
	}}
	known := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	old := lookedUp{all: known, at: time.Now().Add(-2 * lookupAge)}
	a := addresses{known: map[string]lookedUp{"gpu1.invalid": old}}
	running := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.known["gpu1.invalid"].renewing
	}
	for range 2 {
		if found, err := a.latest("gpu1.invalid"); err != nil || !slices.Equal(found, known) || !running() {
			t.Errorf("the addresses are %v, %v; a lookup is still running: %v", found, err, running())
		}
	}
	<-asked
	for respond(); running(); time.Sleep(time.Millisecond) {
	}
	net.DefaultResolver = before
	if found, err := a.latest("gpu1.invalid"); err != nil || !slices.Equal(found, known) {
		t.Errorf("after a lookup that failed, the addresses are %v, %v", found, err)
	}
}
