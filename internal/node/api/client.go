package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxAnswer is the maximum number of bytes that a client reads from a response. The status of 16 GPUs with 112 leases
// takes about 100 KiB.
const maxAnswer = 4 << 20

// retryEvery is the pause between attempts in Retry.
const retryEvery = 250 * time.Millisecond

// Client calls this node's agent. It does not keep connections open between calls, so an idle Client needs no
// goroutine.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client for the agent whose sockets are in runDir. It does not connect to the agent yet. A client
// that runs as root connects to the socket for root or, if this fails, to the socket for all users, because agents from
// earlier releases do not have a socket for root.
func NewClient(runDir string) *Client {
	socket := filepath.Join(runDir, SocketName)
	dialer := net.Dialer{}
	return &Client{
		socket: socket,
		http: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if os.Geteuid() == 0 {
					if conn, err := dialer.DialContext(ctx, "unix", filepath.Join(runDir, RootSocketName)); err == nil {
						return conn, nil
					}
				}
				return dialer.DialContext(ctx, "unix", socket)
			},
		}},
	}
}

// Socket returns the path of the agent's socket for all users. Every release of the agent creates this socket.
func (c *Client) Socket() string { return c.socket }

// Lease requests a lease for the job. Repeated calls with the same job and restart count return the same lease.
func (c *Client) Lease(ctx context.Context, job uint32, r LeaseRequest) (*Lease, error) {
	lease := new(Lease)
	if err := c.call(ctx, http.MethodPost, fmt.Sprintf("/v1/jobs/%d/lease", job), r, lease); err != nil {
		return nil, err
	}
	return lease, nil
}

// Release releases the job's lease if the lease's restart count is at most restart (see Handler). It also succeeds if
// there is no matching lease.
func (c *Client) Release(ctx context.Context, job uint32, restart int) error {
	return c.call(ctx, http.MethodDelete, fmt.Sprintf("/v1/jobs/%d/lease?restart=%d", job, restart), nil, nil)
}

// Job returns the job's lease. If the job does not have one, the error is an *Error with code 404.
func (c *Client) Job(ctx context.Context, job uint32) (*Lease, error) {
	lease := new(Lease)
	if err := c.call(ctx, http.MethodGet, fmt.Sprintf("/v1/jobs/%d", job), nil, lease); err != nil {
		return nil, err
	}
	return lease, nil
}

// Status returns the node's state as its agent reports it.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	status := new(Status)
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, status); err != nil {
		return nil, err
	}
	return status, nil
}

// Retry repeats call until it succeeds or fails with a permanent error, or until ctx is done. It returns the last
// error. Temporary errors are status 503 and an unreachable agent (no socket, connection refused, or connection lost
// while the agent restarts). Because all calls are idempotent, Retry may repeat an interrupted call.
func Retry(ctx context.Context, call func(context.Context) error) error {
	var last error
	for {
		err := call(ctx)
		if err == nil || !temporary(err) {
			return err
		}
		// If ctx is done, the previous error is more helpful than "deadline exceeded".
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(retryEvery):
		}
	}
}

func temporary(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Code == http.StatusServiceUnavailable
	}
	return true
}

// Reason returns err's message without the method and address that the net/http and net packages add.
func Reason(err error) string {
	var errno syscall.Errno
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Message
	case errors.Is(err, os.ErrNotExist):
		return "no such socket"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	// The host name is arbitrary, because the dialer always connects to the socket.
	req, err := http.NewRequestWithContext(ctx, method, "http://caelumd"+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return problem(resp.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return &Error{Code: resp.StatusCode, Message: "couldn't read the agent's answer: " + err.Error()}
	}
	return nil
}

func problem(code int, body []byte) *Error {
	var p Problem
	if json.Unmarshal(body, &p) != nil || p.Error == "" {
		p.Error = strings.TrimSpace(http.StatusText(code) + " " + firstLine(body))
	}
	return &Error{Code: code, Message: p.Error}
}

func firstLine(body []byte) string {
	line, _, _ := bytes.Cut(body, []byte("\n"))
	return string(line[:min(len(line), 200)])
}
