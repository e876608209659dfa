package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// serve serves metrics on a free port until the test ends, and returns the address.
func serve(t *testing.T) string {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- testMetrics().Serve(ctx, l, log.New(io.Discard, "", 0)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestServe(t *testing.T) {
	address := serve(t)
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("Content-Type is %q", got)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if families, err := parser.TextToMetricFamilies(answer.Body); err != nil || families["caelum_slices"] == nil {
		t.Errorf("the answer has %d families (%v)", len(families), err)
	}
	if _, err := Listen(address); err == nil || !strings.Contains(err.Error(), "change metrics_listen") {
		t.Errorf("a second Listen returned %v", err)
	}
}

// TestBadRequests sends requests that a hostile user could send.
func TestBadRequests(t *testing.T) {
	address := serve(t)
	for _, c := range []struct{ request, status string }{
		{"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405"},
		{"GET /debug/pprof/ HTTP/1.1\r\nHost: a\r\n\r\n", "404"},
		{"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2*maxHead) + "\r\n\r\n", "431"},
		{"\x16\x03\x01\r\n\r\n", "400"},
		{"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200"}, // the server still answers
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, c.request)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(line, " "+c.status+" ") {
			t.Errorf("the answer to %.20q is %q (%v), want status %s", c.request, line, err, c.status)
		}
		conn.Close()
	}
}

func TestTimeouts(t *testing.T) {
	s := testMetrics().server(nil)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Fatalf("a limit of the server is missing: %+v", s)
	}
	const short = 50 * time.Millisecond
	s.ReadHeaderTimeout, s.ReadTimeout = short, short
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\n") // an incomplete head
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server did not close the connection")
	}
}

// TestConnectionLimit opens more connections than the server accepts, and checks that the server answers the last one
// only after another connection has ended.
func TestConnectionLimit(t *testing.T) {
	s := testMetrics().server(nil)
	s.ReadHeaderTimeout, s.ReadTimeout = time.Hour, time.Hour // longer than the test
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	address := l.Addr().String()
	var open []net.Conn
	for range maxConnections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	last, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	fmt.Fprint(last, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
	last.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server answered one connection too many: %d bytes, %v", n, err)
	}
	open[0].Close()
	last.SetReadDeadline(time.Now().Add(time.Minute))
	if line, err := bufio.NewReader(last).ReadString('\n'); !strings.Contains(line, " 200 ") {
		t.Errorf("the answer is %q (%v)", line, err)
	}
}
