// Package wake sends and answers datagrams that say "look now" and nothing else: the watcher sends them to agents, agents to the watcher. They may
// come from anybody and may be lost. What is in them is not read; a few at once are answered, and then two a second: a job that comes and goes may be reason for three.
package wake

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

const (
	burst = 20
	every = 500 * time.Millisecond
)

// Send says it to the host at an address.
func Send(host string, port int) error {
	conn, err := net.Dial("udp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(nil)
	return err
}

// Listen calls look for datagrams that come to an address (empty: any of this host's), at the next moment that it may, until ctx ends. What comes while look runs or has
// to wait is answered by one call more.
func Listen(ctx context.Context, address string, port int, look func()) error {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	woken := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		defer close(woken)
		var nothing [1]byte
		for {
			if _, _, err := conn.ReadFrom(nothing[:]); err != nil {
				if !errors.Is(err, net.ErrClosed) {
					failed <- err
				}
				return
			}
			select {
			case woken <- struct{}{}:
			default: // a look is due already
			}
		}
	}()
	limit := rate.NewLimiter(rate.Every(every), burst)
	for range woken {
		if limit.Wait(ctx) != nil {
			return nil
		}
		look()
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
