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

// How long the agent waits for a caller: for the head of a call, for all of it and between two calls, and until an
// answer is taken. A call itself may last: the prolog of a job waits for its slices.
const (
	headTimeout  = 5 * time.Second
	callTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
)

// Handler is what the agent does for each call. An error that is a *Error goes out with its code, any other as 500.
// For Lease, 503 (see NotNow) means "ask again", and everything else but 200 drains the node: see CodeOf.
//
// Release gives back the job's lease of that restart count or of a lower one. A requeue counts before the epilog of the
// run that it ends: Slurm 22.05 was seen to run the prolog with restart 0, and the epilog of the same run with 1.
type Handler interface {
	Lease(ctx context.Context, job uint32, r LeaseRequest) (*Lease, error)
	Release(ctx context.Context, job uint32, restart int) error
	Job(ctx context.Context, job uint32) (*Lease, error)
	Status(ctx context.Context) (*Status, error)
}

// Refuser is a Handler that is told of each call which only root may make and somebody else did: anybody can, as often
// as they like.
type Refuser interface {
	Refused(uid uint32, call string)
}

// Listen makes the socket for all users in runDir, which must exist, and takes the place of one that a dead agent left.
// Who may change things is decided per call by SO_PEERCRED.
func Listen(runDir string) (net.Listener, error) {
	return listen(filepath.Join(runDir, SocketName), 0o666, limits{maxPerUser, maxAllUsers})
}

// ListenRoot makes root's own socket in runDir, like Listen. A user who connects before its mode is set is turned away.
func ListenRoot(runDir string) (net.Listener, error) {
	return listen(filepath.Join(runDir, RootSocketName), 0o600, limits{})
}

func listen(path string, mode os.FileMode, users limits) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("couldn't listen on %s: another agent answers there; stop it first", path)
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
	return &listener{UnixListener: l, users: users, held: map[uint32]int{}}, nil
}

// NewServer returns a server of h; run it with Serve on what Listen returned, end it with Shutdown.
func NewServer(h Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc(
		"POST /v1/jobs/{id}/lease",
		rootOnly(h, func(w http.ResponseWriter, r *http.Request, job uint32) (any, error) {
			req, err := readLeaseRequest(w, r)
			if err != nil {
				return nil, err
			}
			return h.Lease(r.Context(), job, req)
		}),
	)
	mux.HandleFunc(
		"DELETE /v1/jobs/{id}/lease",
		rootOnly(h, func(_ http.ResponseWriter, r *http.Request, job uint32) (any, error) {
			restart, err := readRestart(r)
			if err != nil {
				return nil, err
			}
			return struct{}{}, h.Release(r.Context(), job, restart)
		}),
	)
	mux.HandleFunc("POST /v1/adopt", serveAdopt(h))
	mux.HandleFunc("GET /v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
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
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		status, err := h.Status(r.Context())
		if err == nil {
			shown := status.shownTo(Peer(r.Context()), visibility(h, Peer(r.Context())))
			status = &shown
		}
		answer(w, status, err)
	})
	return &http.Server{
		Handler:           limited(mux),
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       callTimeout,
		IdleTimeout:       callTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			uid := nobody
			switch c := c.(type) {
			case *conn:
				uid = c.uid
			case *net.UnixConn:
				uid = peerUID(c)
			}
			return context.WithValue(ctx, peerKey{}, uid)
		},
	}
}

type peerKey struct{}

// Peer is the user id of the process that made the call of ctx.
func Peer(ctx context.Context) uint32 {
	if uid, ok := ctx.Value(peerKey{}).(uint32); ok {
		return uid
	}
	return nobody
}

// refuseUser answers the call of a user who is not root, of which nothing else is read.
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

// rootOnly serves a call that changes a job's lease. Nothing of anybody else's call is read but who makes it.
func rootOnly(h Handler, f func(w http.ResponseWriter, r *http.Request, job uint32) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if refuseUser(h, w, r, "only root may change leases") {
			return
		}
		job, err := readJob(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		body, err := f(w, r, job)
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

// CodeOf is the one place that decides whether an error may pass, so that the prolog asks again, or drains the node.
// Only a defect of the node itself may drain it: a Handler answers nothing else with an error that is not a *Error. A
// disk is full until somebody makes room, and the prolog that waits meanwhile carries the message.
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
