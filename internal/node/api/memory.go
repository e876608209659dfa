package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// MemoryReport holds the values of the memory allocator in one of a job's processes. They come from the user and must
// not affect anything but that user's own job.
type MemoryReport struct {
	// UUID is the UUID of the MIG device. If it is empty, the report is about the job's only slice.
	UUID string `json:"uuid,omitempty"`
	// Allocated is the memory that the program's tensors use. Reserved also includes the memory that the allocator
	// keeps for later tensors. All values are in bytes.
	Allocated     int64 `json:"allocated"`
	Reserved      int64 `json:"reserved"`
	PeakAllocated int64 `json:"peak_allocated"`
	PeakReserved  int64 `json:"peak_reserved"`
	// Unreleasable is the part of Reserved that the allocator neither uses nor can return to the driver, because the
	// rest of the same block is in use (inactive_split_bytes in PyTorch).
	Unreleasable int64 `json:"unreleasable,omitempty"`
	// OOMs is the number of allocations that have failed, since the process started, because there was too little
	// memory.
	OOMs int `json:"ooms"`
	// Iteration is the number of completed iterations, and Iterations the total number. Unknown values are 0.
	Iteration  int64 `json:"iteration,omitempty"`
	Iterations int64 `json:"iterations,omitempty"`
}

// Reporter is a Handler that accepts memory reports. The argument pid identifies the process that connected, or is 0 if
// it is unknown. The handler checks whether this process belongs to the job.
type Reporter interface {
	ReportMemory(ctx context.Context, job uint32, pid int, r MemoryReport) error
}

const (
	maxReport     = 4 << 10 // the maximum size of a report in bytes; a typical report takes about 300
	maxReportUUID = 64      // the UUID of a MIG device has 40 characters
	maxBytes      = 1 << 50 // 1 PiB
	maxIterations = 1 << 50
)

// serveMemory returns the handler of POST /v1/jobs/{id}/memory.
func serveMemory(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		job, err := readJob(r)
		if err == nil {
			err = reportMemory(h, w, r, job)
		}
		if err != nil {
			w.Header().Set("Connection", "close")
		}
		answer(w, struct{}{}, err)
	}
}

func reportMemory(h Handler, w http.ResponseWriter, r *http.Request, job uint32) error {
	reporter, ok := h.(Reporter)
	if !ok {
		return NotFound("couldn't store the report: this agent does not accept memory reports")
	}
	report, err := readMemoryReport(w, r)
	if err != nil {
		return err
	}
	return reporter.ReportMemory(r.Context(), job, peerPID(r.Context()), report)
}

// readMemoryReport parses a report. It ignores unknown keys, because the Python package may be newer than the agent.
func readMemoryReport(w http.ResponseWriter, r *http.Request) (MemoryReport, error) {
	var m MemoryReport
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReport))
	err := d.Decode(&m)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("unexpected data after the report")
		}
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return m, badRequest("couldn't read the memory report: " + err.Error())
	}
	return m, nil
}

// check returns an error if any value is out of range.
func (m MemoryReport) check() error {
	for _, v := range []struct {
		name       string
		value, max int64
	}{
		{"allocated", m.Allocated, maxBytes},
		{"reserved", m.Reserved, maxBytes},
		{"peak_allocated", m.PeakAllocated, maxBytes},
		{"peak_reserved", m.PeakReserved, maxBytes},
		{"unreleasable", m.Unreleasable, maxBytes},
		{"ooms", int64(m.OOMs), maxIterations},
		{"iteration", m.Iteration, maxIterations},
		{"iterations", m.Iterations, maxIterations},
	} {
		if v.value < 0 || v.value > v.max {
			return fmt.Errorf("%s %d is not between 0 and %d", v.name, v.value, v.max)
		}
	}
	if len(m.UUID) > maxReportUUID {
		return fmt.Errorf("the UUID has more than %d characters", maxReportUUID)
	}
	return nil
}
