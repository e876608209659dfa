package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"caelum/internal/node/api/apitest"
)

// recorder is a handler that returns all kinds of answers that an agent gives. It counts the calls, and records any
// that the server should have rejected.
type recorder struct {
	mu            sync.Mutex
	asked, others int
	reports       int
	bad           string
}

func (r *recorder) Lease(ctx context.Context, job uint32, q LeaseRequest) (*Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if Peer(ctx) != 0 || job == 0 {
		r.bad = fmt.Sprintf("user %d requests a lease for job %d", Peer(ctx), job)
	}
	if err := q.check(); err != nil {
		r.bad = fmt.Sprintf("the server passes %+v to the handler: %v", q, err)
	}
	switch q.Restart % 4 {
	case 1:
		return nil, NotNow("slurmctld does not answer")
	case 2:
		return nil, errors.New("GPU 0 fell off the bus\n\x00\xff<&>")
	}
	return &Lease{Job: job, Restart: q.Restart, UID: q.UID, Slots: q.Slots, Error: q.MIG}, nil
}

func (r *recorder) Release(ctx context.Context, job uint32, restart int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if Peer(ctx) != 0 || job == 0 || restart < 0 || restart > 65535 {
		r.bad = fmt.Sprintf("user %d releases job %d, restart %d", Peer(ctx), job, restart)
	}
	return nil
}

func (r *recorder) Job(_ context.Context, job uint32) (*Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others++
	if job%2 == 0 {
		return nil, NotFound("no lease for this job")
	}
	return &Lease{Job: job, Name: "\x1b[2J\xff", Slots: []int{0}}, nil
}

func (r *recorder) Status(context.Context) (*Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others++
	return &Status{Node: "n1"}, nil
}

func (r *recorder) ReportMemory(ctx context.Context, job uint32, pid int, m MemoryReport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports++
	if job == 0 || pid == 0 {
		r.bad = fmt.Sprintf("a report of process %d for job %d", pid, job)
	}
	if err := m.check(); err != nil {
		r.bad = fmt.Sprintf("the server passes %+v to the handler: %v", m, err)
	}
	if m.OOMs%2 == 1 {
		return &Error{http.StatusTooManyRequests, "wait"}
	}
	return nil
}

func (r *recorder) Refused(uid uint32, call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others++
	if uid == 0 || strings.ContainsFunc(call, unicode.IsControl) {
		r.bad = fmt.Sprintf("the server rejects the call %[2]q of user %[1]d", uid, call)
	}
}

var codes = []int{200, 301, 307, 400, 403, 404, 405, 408, 413, 414, 415, 417, 431, 500, 501, 503, 505}

const wholeReport = `{"uuid":"MIG-1","allocated":1,"reserved":2,"peak_allocated":3,"peak_reserved":4,"ooms":0}`

const wholeRequest = `{"restart":0,"uid":1001,"gid":1001,"partition":"gpu","slots":[0,3]}`

// seeds holds the seed inputs of FuzzServer: valid requests, and one invalid request for each kind of mistake.
var seeds = []struct {
	root                         bool
	method, target, header, body string
	pad                          uint32
}{
	{true, "POST", "/v1/jobs/12/lease", "", wholeRequest, 0},
	{false, "POST", "/v1/jobs/12/lease", "", wholeRequest, 0},
	{true, "POST", "/v1/jobs/12/lease", "", strings.Replace(wholeRequest, "0,", "1,", 1), 70000},
	{true, "POST", "/v1/jobs/12/lease", "", `{"restart":-1,"slots":[]}`, 0},
	{true, "POST", "/v1/jobs/12/lease", "", `{"slots":[0,0,-1,1e9]}`, 0},
	{true, "POST", "/v1/jobs/12/lease", "Transfer-Encoding: chunked\r\n", "5\r\n{\"uid\r\n0\r\n\r\n", 0},
	{true, "POST", "/v1/jobs/4294967296/lease", "Expect: 100-continue\r\n", "null", 0},
	{true, "DELETE", "/v1/jobs/12/lease?restart=2", "", "", 0},
	{false, "DELETE", "/v1/jobs/12/lease?restart=65535", "", "", 0},
	{true, "DELETE", "/v1/jobs/0/lease?restart=-1&restart=1;restart=%zz", "", "", 0},
	{false, "GET", "/v1/jobs/13", "", "", 0},
	{false, "POST", "/v1/jobs/12/memory", "", wholeReport, 0},
	{true, "POST", "/v1/jobs/12/memory", "", `{"ooms":1,"iteration":-1}`, 0},
	{false, "POST", "/v1/jobs/12/memory", "", `{"allocated":1e15,"uuid":"\u0000"}`, 5000},
	{false, "DELETE", "/v1/jobs/0/memory", "", "{}", 0},
	{false, "HEAD", "/v1/jobs/13", "", "", 0},
	{false, "GET", "/v1/status", "Host: \r\nConnection: upgrade\r\nUpgrade: h2c\r\n", "", 0},
	{false, "GET", "/v1/../v1//status", "", "GET /v1/status HTTP/1.0\r\n\r\n", 0},
	{false, "PRI", "*", "", "SM\r\n\r\n", 0},
	{false, "CONNECT", "/v1/jobs/12/lease", "X: " + strings.Repeat("y", 20000) + "\r\n", "", 0},
	{false, "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\nPOST", "/v1/jobs/1/lease", "Content-Length: 1\r\n", "{}", 0},
}

// serveAnyone starts a server on a socket to which every user can connect. It returns the handler, the error log and
// the socket's path.
func serveAnyone(t testing.TB) (*recorder, *lines, string) {
	dir, err := os.MkdirTemp("", "api") // other users have no access to a directory of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, errs := &recorder{}, &lines{}
	s := NewServer(h)
	s.ErrorLog = log.New(errs, "", 0)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return h, errs, filepath.Join(dir, SocketName)
}

// FuzzServer sends arbitrary requests. No handler may panic, and only valid requests from root may reach Lease and
// Release. Every answer must be HTTP, and its body must be the JSON for its status.
func FuzzServer(f *testing.F) {
	if os.Getuid() != 0 {
		f.Skip("needs root to connect as another user")
	}
	for _, s := range seeds {
		f.Add(s.root, s.method, s.target, s.header, []byte(s.body), s.pad)
	}
	h, errs, socket := serveAnyone(f)
	f.Fuzz(func(t *testing.T, root bool, method, target, header string, body []byte, pad uint32) {
		body = slices.Concat(bytes.Repeat([]byte(" "), int(pad%(3*maxRequest))), body)
		request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: caelumd\r\n%sContent-Length: %d\r\n\r\n%s",
			method, target, header, len(body), body)
		uid := uint32(65534)
		if root {
			uid = 0
		}
		asked := h.asked
		raw, err := apitest.Send(socket, uid, request)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.bad != "" || (!root && h.asked != asked) {
			t.Fatalf("%d calls as user %d; %s", h.asked-asked, uid, h.bad)
		}
		if text := errs.take(); strings.Contains(text, "panic") {
			t.Fatal(text)
		}
		if bytes.Contains(request, []byte("HEAD")) { // the answer has no body
			return
		}
		answers, err := apitest.Answers(raw)
		if err != nil {
			t.Fatalf("%v\n%q", err, raw)
		}
		for _, a := range answers {
			checkAnswer(t, a)
		}
	})
}

func checkAnswer(t *testing.T, a apitest.Answer) {
	if !slices.Contains(codes, a.Code) {
		t.Fatalf("code %d", a.Code)
	}
	if !a.JSON {
		if a.Code == 200 || a.Code == 500 || a.Code == 503 {
			t.Fatalf("%d without JSON: %q", a.Code, a.Body)
		}
		return
	}
	if a.Code != http.StatusOK {
		var p Problem
		if !strictly(a.Body, &p) || p.Error == "" {
			t.Fatalf("%d: %q", a.Code, a.Body)
		}
		return
	}
	if !strictly(a.Body, new(Lease)) && !strictly(a.Body, new(Status)) {
		t.Fatalf("200: %q", a.Body)
	}
}

func strictly(text []byte, into any) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into) == nil && d.Decode(&struct{}{}) == io.EOF
}

// lines is the server's error log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}
