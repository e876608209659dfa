// Package apitest sends bytes to an API server as any user, and parses the answers strictly. Only tests import it.
package apitest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// patience limits the duration of one call to Send. It is longer than the server's limits, which are 5 s for the header
// and 10 s for the whole request.
const patience = 20 * time.Second

// Send connects to the socket as the given user, sends the request, closes the connection for writing, and returns all
// bytes that the server sends. The user must have access to the socket's directory.
func Send(socket string, uid uint32, request []byte) ([]byte, error) {
	conn, err := dial(socket, uid)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	go func() {
		conn.Write(request) // fails if the server stops reading
		conn.CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if errors.Is(err, syscall.ECONNRESET) { // the server closed the connection before it had read the whole request
		err = nil
	}
	return answer, err
}

// dial connects to the socket as the given user. SO_PEERCRED then shows this user, because the kernel records the user
// id of the connecting thread.
func dial(socket string, uid uint32) (*net.UnixConn, error) {
	runtime.LockOSThread()
	if err := effective(uid); err != nil {
		return nil, fmt.Errorf("couldn't change to user %d (this requires root): %w", uid, err)
	}
	fd, err := connect(socket)
	if back := effective(0); back != nil {
		panic("apitest: couldn't become root again: " + back.Error())
	}
	runtime.UnlockOSThread()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

func connect(socket string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

// effective changes the effective user of only the calling thread. syscall.Setresuid would change the user of every
// thread.
func effective(uid uint32) error {
	const same = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		return errno
	}
	return nil
}

// Answer is one of a server's HTTP responses.
type Answer struct {
	Code int
	JSON bool // false for net/http's own responses, which are plain text
	Body []byte
}

// Answers splits the result of Send into HTTP responses, or returns an error if the bytes are not valid responses.
func Answers(raw []byte) ([]Answer, error) {
	var all []Answer
	in := bufio.NewReader(bytes.NewReader(raw))
	for {
		if _, err := in.Peek(1); err == io.EOF {
			return all, nil
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
		if err != nil {
			return nil, fmt.Errorf("answer %d: %w", len(all), err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("the body of answer %d: %w", len(all), err)
		}
		if resp.StatusCode != http.StatusContinue {
			all = append(
				all,
				Answer{resp.StatusCode, strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"), body},
			)
		}
	}
}
