package api

import (
	"fmt"
	"net/http"
)

// Error is a reply from the agent with a status other than 200. A handler sets the status by returning an *Error; for
// any other error, the status is determined by CodeOf.
type Error struct {
	// Code is the HTTP status: 400 bad request, 403 not permitted, 404 job not found, 429 too many calls, 503 try again
	// later, 500 a fault on the node.
	Code int
	// Message gives the reason and the remedy, without the code.
	Message string
}

func (e *Error) Error() string { return e.Message }

// NotNow returns an error with status 503. After this error, the prolog and the epilog repeat the call until their
// deadline.
func NotNow(message string) error { return &Error{http.StatusServiceUnavailable, message} }

// NotFound returns an error with status 404.
func NotFound(message string) error { return &Error{http.StatusNotFound, message} }

// NoLease returns the error for a job without a lease. The server returns the same error for a job that the caller is
// not allowed to see.
func NoLease(job uint32) error {
	return NotFound(fmt.Sprintf("job %[1]d holds no slice on this node; `scontrol show job %[1]d` prints the job's "+
		"state and nodes (NodeList); if the job is running, run `caelum job %[1]d` on one of these nodes", job))
}
