package api

import (
	"fmt"
	"net/http"
)

// Error is an answer of the agent other than 200. The agent's handlers return one to choose the code; any
// other error of a handler goes out as 500.
type Error struct {
	// Code is the HTTP status: 400 a bad request, 403 not allowed, 404 no such thing, 429 too often, 503 not now, 500
	// broken.
	Code int
	// Message says what happened and what to do, without the code.
	Message string
}

func (e *Error) Error() string { return e.Message }

// NotNow is the error that makes the prolog and the epilog ask again until their deadline.
func NotNow(message string) error { return &Error{http.StatusServiceUnavailable, message} }

// NotFound is the error for a job without a lease.
func NotFound(message string) error { return &Error{http.StatusNotFound, message} }

// NoLease is the error for a job without a lease, and for one that the caller may not see.
func NoLease(job uint32) error {
	return NotFound(fmt.Sprintf("job %d holds no slice on this node", job))
}
