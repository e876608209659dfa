package agent

import (
	"context"
	"net"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// Datagrams that say "look now" (package watch) may come from anybody. A few passes at once are answered, and then one a second.
const (
	wakeBurst = 5
	wakeEvery = time.Second
)

// waker makes a pass at every datagram, or at the next moment that it may.
func (a *Agent) waker(ctx context.Context) {
	addr := net.JoinHostPort(a.cfg.WakeAddress, strconv.Itoa(a.cfg.WakePort))
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		a.log.WithError(err).Error("couldn't listen for the watcher; looking at the queue every " + a.cfg.PollInterval.String() + " only")
		return
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	woken := make(chan struct{}, 1)
	go func() {
		defer close(woken)
		var nothing [1]byte
		for {
			if _, _, err := conn.ReadFrom(nothing[:]); err != nil {
				if ctx.Err() == nil {
					a.log.WithError(err).Error("couldn't go on listening for the watcher")
				}
				return
			}
			select {
			case woken <- struct{}{}:
			default: // a pass is due already
			}
		}
	}()
	limit := rate.NewLimiter(rate.Every(wakeEvery), wakeBurst)
	for range woken {
		if limit.Wait(ctx) != nil {
			return
		}
		a.Publish(ctx) // what goes wrong is logged and tried again by the publisher
	}
}
