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
	"strconv"
	"syscall"
	"time"
)

// maxRequest bounds a request's body, in bytes: a lease request for 256 slots is about 1.5 KiB.
const maxRequest = 64 << 10

// Handler is what the agent does for each call. An error that is a *Error goes out with its code, any other as 500.
// For Lease, 503 (see NotNow) means "ask again", and everything else but 200 drains the node.
//
// Release gives back the job's lease of that restart count or of a lower one. A requeue counts before the epilog of the
// run that it ends: Slurm 22.05 was seen to run the prolog with restart 0, and the epilog of the same run with 1.
type Handler interface {
	Lease(ctx context.Context, job uint32, r LeaseRequest) (*Lease, error)
	Release(ctx context.Context, job uint32, restart int) error
	Job(ctx context.Context, job uint32) (*Lease, error)
	Status(ctx context.Context) (*Status, error)
}

// Listen makes the socket in runDir, which must exist, and takes the place of one that a dead agent left.
// The socket is open to everyone: who may change things is decided per call by SO_PEERCRED.
func Listen(runDir string) (net.Listener, error) {
	path := filepath.Join(runDir, SocketName)
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("couldn't listen on %s: another agent answers there; stop it first", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("couldn't replace the old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("couldn't listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("couldn't open the socket to users: %w", err)
	}
	return l, nil
}

// NewServer returns a server of h; run it with Serve on what Listen returned, end it with Shutdown.
func NewServer(h Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/{id}/lease", func(w http.ResponseWriter, r *http.Request) {
		answer(w, rootOnly(r, func(job uint32) (any, error) {
			var req LeaseRequest
			d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
			if err := d.Decode(&req); err != nil {
				return nil, &Error{http.StatusBadRequest, "couldn't read the lease request: " + err.Error()}
			}
			return h.Lease(r.Context(), job, req)
		}))
	})
	mux.HandleFunc("DELETE /v1/jobs/{id}/lease", func(w http.ResponseWriter, r *http.Request) {
		answer(w, rootOnly(r, func(job uint32) (any, error) {
			restart, err := strconv.ParseUint(r.URL.Query().Get("restart"), 10, 16)
			if err != nil {
				return nil, &Error{http.StatusBadRequest, "couldn't read restart=: " + err.Error()}
			}
			return struct{}{}, h.Release(r.Context(), job, int(restart))
		}))
	})
	mux.HandleFunc("GET /v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, withJob(r, func(job uint32) (any, error) { return h.Job(r.Context(), job) }))
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		answer(w, func() (any, error) { return h.Status(r.Context()) })
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peerUID(c))
		},
	}
}

type peerKey struct{}

// nobody is the uid of a peer that the kernel would not name; it is never root.
const nobody = ^uint32(0)

func peerUID(c net.Conn) uint32 {
	uid := nobody
	if u, ok := c.(*net.UnixConn); ok {
		if raw, err := u.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
					uid = cred.Uid
				}
			})
		}
	}
	return uid
}

// Peer is the user id of the process that made the call of ctx.
func Peer(ctx context.Context) uint32 {
	if uid, ok := ctx.Value(peerKey{}).(uint32); ok {
		return uid
	}
	return nobody
}

func rootOnly(r *http.Request, f func(job uint32) (any, error)) func() (any, error) {
	if uid := Peer(r.Context()); uid != 0 {
		return func() (any, error) {
			return nil, &Error{http.StatusForbidden, "only root may change leases"}
		}
	}
	return withJob(r, f)
}

func withJob(r *http.Request, f func(job uint32) (any, error)) func() (any, error) {
	return func() (any, error) {
		job, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
		if err != nil || job == 0 {
			return nil, &Error{http.StatusBadRequest, "a job id is a number above 0"}
		}
		return f(uint32(job))
	}
}

func answer(w http.ResponseWriter, f func() (any, error)) {
	code := http.StatusOK
	body, err := f()
	if err != nil {
		code = http.StatusInternalServerError
		var e *Error
		if errors.As(err, &e) {
			code = e.Code
		}
		body = Problem{Error: err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body)
}
