package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"caelum/internal/node/api/apitest"
)

// ReportMemory sends a memory report on behalf of the calling process, as a training program does.
func (c *Client) ReportMemory(ctx context.Context, job uint32, r MemoryReport) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/v1/jobs/%d/memory", job), r, nil)
}

// reporting is a handler that records the reports.
type reporting struct {
	fake
	jobs    []uint32
	pids    []int
	reports []MemoryReport
	err     error
}

func (r *reporting) ReportMemory(ctx context.Context, job uint32, pid int, m MemoryReport) error {
	r.jobs, r.pids, r.reports = append(r.jobs, job), append(r.pids, pid), append(r.reports, m)
	return r.err
}

// TestMemoryReport checks that a report reaches the handler with the process that connected, and that the handler's
// error reaches the caller.
func TestMemoryReport(t *testing.T) {
	h := &reporting{}
	dir := t.TempDir()
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(h)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	c := NewClient(dir)
	want := MemoryReport{
		UUID: "MIG-1", Allocated: 1, Reserved: 2, PeakAllocated: 3, PeakReserved: 4, Unreleasable: 5, OOMs: 6,
		Iteration: 7, Iterations: 8,
	}
	if err := c.ReportMemory(t.Context(), 12, want); err != nil {
		t.Fatal(err)
	}
	if len(h.reports) != 1 || h.reports[0] != want || h.jobs[0] != 12 || h.pids[0] != os.Getpid() {
		t.Errorf("reports %+v of jobs %v from %v", h.reports, h.jobs, h.pids)
	}
	h.err = &Error{http.StatusTooManyRequests, "wait"}
	var e *Error
	if err := c.ReportMemory(t.Context(), 12, want); !errors.As(err, &e) || *e != *h.err.(*Error) {
		t.Errorf("%v", err)
	}
}

// chunk returns a string as one chunk of a chunked body.
func chunk(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
}

// TestMemoryReportWithoutReporter checks the answer of a handler that accepts no reports.
func TestMemoryReportWithoutReporter(t *testing.T) {
	var e *Error
	c := NewClient(serve(t, &fake{}))
	if err := c.ReportMemory(t.Context(), 12, MemoryReport{}); !errors.As(err, &e) || e.Code != http.StatusNotFound {
		t.Errorf("%v", err)
	}
}

// TestBadMemoryReports checks that the server rejects ordinary users' invalid reports without calling the handler.
func TestBadMemoryReports(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to connect as another user")
	}
	h, _, socket := serveAnyone(t)
	for _, body := range []string{
		"", "null null", "[]", `{"allocated":-1}`, `{"reserved":1125899906842625}`, `{"ooms":-1}`, `{"ooms":1e30}`,
		`{"peak_allocated":"1"}`, `{"iteration":-1}`, `{"iterations":9223372036854775807}`, `{"unreleasable":-5}`,
		`{"uuid":"` + strings.Repeat("x", 65) + `"}`, `{"allocated":1}{}`,
		`{"x":"` + strings.Repeat("x", maxReport) + `"}`,
	} {
		raw, err := apitest.Send(socket, 65534, []byte("POST /v1/jobs/12/memory HTTP/1.1\r\nHost: caelumd\r\n"+
			"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(body)+"0\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		answers, err := apitest.Answers(raw)
		if err != nil || len(answers) != 1 || answers[0].Code != http.StatusBadRequest ||
			!strings.Contains(string(answers[0].Body), "couldn't read the memory report") {
			t.Errorf("%.80s: %v %q", body, err, raw)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reports != 0 {
		t.Errorf("%d invalid reports reached the handler", h.reports)
	}
}
