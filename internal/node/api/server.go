package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// These constants limit how long the agent waits for a caller. There is no time limit for handling a call, because a
// job's prolog waits for the job's slices.
const (
	headTimeout  = 5 * time.Second  // the time to receive the header of a call
	callTimeout  = 10 * time.Second // the time to receive the entire call, and the time between calls
	writeTimeout = 10 * time.Second // the time until the caller has read the answer
)

// Handler serves the calls. If a method returns an *Error, the server replies with its code; for any other error, it
// replies with the result of CodeOf. For Lease, 503 (see NotNow) means "call again later". After any other status
// except 200, the prolog fails, and Slurm drains the node.
//
// Release releases the job's lease if the lease's restart count is at most restart. The lease's count may be lower,
// because when slurmctld requeues a job, it increments the count before the epilog of the finished run. For example, in
// Slurm 22.05, the prolog of a run had the count 0, and its epilog had the count 1.
type Handler interface {
	Lease(ctx context.Context, job uint32, r LeaseRequest) (*Lease, error)
	Release(ctx context.Context, job uint32, restart int) error
	Job(ctx context.Context, job uint32) (*Lease, error)
	Status(ctx context.Context) (*Status, error)
}

// Refuser is a Handler that also has a Refused method. The server calls this method when a user other than root makes a
// call that only root may make. Any user can trigger any number of these calls.
type Refuser interface {
	Refused(uid uint32, call string)
}

// Listen creates the socket for all users in runDir, which must exist, and listens on it. It replaces a socket that an
// earlier agent has left there, but returns an error if another agent accepts connections on it. For each call that
// changes leases, the server checks the caller with SO_PEERCRED. owner determines the user whose limits apply; nil
// means that of the peer's user id.
func Listen(runDir string, owner Owner) (net.Listener, error) {
	return listen(filepath.Join(runDir, SocketName), 0o666, limits{maxPerUser, maxAllUsers}, owner)
}

// ListenRoot is like Listen, but creates the socket for root. If a user connects before the socket's mode is set, the
// listener closes the connection.
func ListenRoot(runDir string) (net.Listener, error) {
	return listen(filepath.Join(runDir, RootSocketName), 0o600, limits{}, nil)
}

func listen(path string, mode os.FileMode, users limits, owner Owner) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("couldn't listen on %s: another agent listens there; stop that agent first", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("couldn't replace the old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("couldn't listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, fmt.Errorf("couldn't set the mode of %s: %w", path, err)
	}
	return &listener{UnixListener: l, users: users, owner: owner, held: map[uint32]int{}}, nil
}

// NewServer returns a server for h. To run it, call Serve with the listeners that Listen and ListenRoot return.
// Shutdown stops it.
func NewServer(h Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/{id}/lease", rootOnly(h, serveLease(h)))
	mux.HandleFunc("DELETE /v1/jobs/{id}/lease", rootOnly(h, serveRelease(h)))
	mux.HandleFunc("POST /v1/jobs/{id}/memory", serveMemory(h))
	mux.HandleFunc("GET /v1/jobs/{id}", serveJob(h))
	mux.HandleFunc("GET /v1/status", serveStatus(h))
	mux.HandleFunc("POST /v1/adopt", serveAdopt(h))
	mux.HandleFunc("POST /v1/gpus/{gpu}/readmit", serveReadmit(h))
	return &http.Server{
		Handler:           limited(mux),
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       callTimeout,
		IdleTimeout:       callTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeer,
	}
}

// jobCall handles a call that concerns a job and returns the body of the reply.
type jobCall func(w http.ResponseWriter, r *http.Request, job uint32) (any, error)

func serveLease(h Handler) jobCall {
	return func(w http.ResponseWriter, r *http.Request, job uint32) (any, error) {
		req, err := readLeaseRequest(w, r)
		if err != nil {
			return nil, err
		}
		return h.Lease(r.Context(), job, req)
	}
}

func serveRelease(h Handler) jobCall {
	return func(_ http.ResponseWriter, r *http.Request, job uint32) (any, error) {
		restart, err := readRestart(r)
		if err != nil {
			return nil, err
		}
		return struct{}{}, h.Release(r.Context(), job, restart)
	}
}

func serveJob(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		job, err := readJob(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		lease, err := h.Job(r.Context(), job)
		if err == nil {
			shown, ok := lease.shownTo(Peer(r.Context()), visibility(h, Peer(r.Context())))
			if lease = &shown; !ok {
				err = NoLease(job)
			}
		}
		answer(w, lease, err)
	}
}

func serveStatus(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, err := h.Status(r.Context())
		if err == nil {
			shown := status.shownTo(Peer(r.Context()), visibility(h, Peer(r.Context())))
			status = &shown
		}
		answer(w, status, err)
	}
}

type peerKey struct{}

// withPeer stores the connection's peer in the context, for Peer and peerPID.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	p := unknownPeer
	switch c := c.(type) {
	case *conn:
		p = c.peer
	case *net.UnixConn:
		p = peerOf(c)
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// Peer returns the user id of the process that sent the request with this context.
func Peer(ctx context.Context) uint32 {
	return peerIn(ctx).uid
}

func peerIn(ctx context.Context) peer {
	if p, ok := ctx.Value(peerKey{}).(peer); ok {
		return p
	}
	return unknownPeer
}

// peerPID returns the id of the process that opened the request's connection, or 0 if unknown. The process may have
// ended since then.
func peerPID(ctx context.Context) int {
	return peerIn(ctx).pid
}

// refuseUser replies with status 403 and the message if the caller is not root, and reports whether it has replied. It
// does not read the request's body.
func refuseUser(h Handler, w http.ResponseWriter, r *http.Request, message string) bool {
	uid := Peer(r.Context())
	if uid == 0 {
		return false
	}
	if h, ok := h.(Refuser); ok {
		h.Refused(uid, r.Method)
	}
	w.Header().Set("Connection", "close")
	answer(w, nil, &Error{http.StatusForbidden, message})
	return true
}

// rootOnly returns the handler of a call that changes a job's lease. It rejects calls from users other than root before
// it reads the job id or the body.
func rootOnly(h Handler, call jobCall) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if refuseUser(h, w, r, "only root may change leases") {
			return
		}
		job, err := readJob(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		body, err := call(w, r, job)
		answer(w, body, err)
	}
}

func answer(w http.ResponseWriter, body any, err error) {
	code := http.StatusOK
	if err != nil {
		code = CodeOf(err)
		body = Problem{Error: err.Error()}
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body)
}

// CodeOf returns the HTTP status for an error that a Handler returned. With status 503, the prolog repeats the call.
// With status 500, the prolog fails, and Slurm drains the node. Only a defect of the node itself may drain it, so a
// Handler must return an *Error for every other failure. For a full disk, CodeOf returns 503, so that the prolog
// repeats the call until an administrator frees disk space. If the prolog gives up before that, its error includes the
// message.
func CodeOf(err error) int {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
