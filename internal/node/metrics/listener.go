package metrics

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// These constants limit the resources that a user can consume with connections to the HTTP port. Each connection serves
// a single request.
const (
	maxConnections = 16
	headTimeout    = 5 * time.Second
	answerTimeout  = 10 * time.Second
	maxHead        = 8 << 10 // bytes
)

// Listen opens the HTTP port at address, which is IP:PORT.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("couldn't open the metrics port %s: %w; change metrics_listen", address, err)
	}
	return netutil.LimitListener(l, maxConnections), nil
}

// Serve answers GET /metrics on the listener until ctx is done, and then closes the listener. Connection errors are
// written to errors.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, errors *log.Logger) error {
	s := m.server(errors)
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("couldn't serve metrics: %w", err)
	}
	return nil
}

func (m *Metrics) server(errors *log.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		text, err := m.text()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		w.Write(text)
	})
	s := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       headTimeout,
		WriteTimeout:      answerTimeout,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          errors,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}
