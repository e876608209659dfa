package api

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"caelum/internal/node/api/apitest"
)

// fill opens and closes connections to a socket until its queue is full. The socket's listener must not be accepting
// connections.
func fill(t *testing.T, path string) {
	t.Helper()
	for n := 0; ; n++ {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		syscall.Close(fd)
		if errors.Is(err, syscall.EAGAIN) {
			t.Logf("the queue is full after %d connections", n)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// asRoot skips a test that requires root.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to use the socket for root")
	}
}

// TestFullQueue checks that the server answers calls from root, such as those of the prolog and the epilog, while the
// queue of the socket for all users is full.
func TestFullQueue(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	users, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close()
	root, err := ListenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	s := NewServer(f)
	go s.Serve(root)
	defer s.Close()
	fill(t, filepath.Join(dir, SocketName))
	if _, err := NewClient(dir).Lease(context.Background(), 12, LeaseRequest{Slots: []int{0}}); err != nil ||
		len(f.asked) != 1 {
		t.Errorf("lease: %v, %d calls", err, len(f.asked))
	}
}

// TestRootSocket checks that users get no answer on the socket for root. Its mode keeps them from connecting, and the
// server must close the connection of a user who connected before the mode was set.
func TestRootSocket(t *testing.T) {
	asRoot(t)
	defer syscall.Umask(syscall.Umask(0))
	dir, err := os.MkdirTemp("", "api") // user 1001 must have access to the directory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, RootSocketName)
	root, err := ListenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	s := NewServer(f)
	go s.Serve(root)
	defer s.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	const request = "GET /v1/status HTTP/1.1\r\nHost: caelumd\r\nConnection: close\r\n\r\n"
	if _, err := apitest.Send(path, 1001, []byte(request)); !errors.Is(err, syscall.EACCES) {
		t.Errorf("a user connects to the socket for root: error %v", err)
	}
	os.Chmod(path, 0o666)
	if answer, _ := apitest.Send(path, 1001, []byte(request)); len(answer) != 0 {
		t.Errorf("a user who connected before the mode was set gets the answer %q", answer)
	}
	if answer, err := apitest.Send(path, 0, []byte(request)); err != nil ||
		!strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("root gets the answer %q, %v", answer, err)
	}
}

// TestRootFallsBack checks that root can call an agent of an earlier release, which has no socket for root. The
// socket then either does not exist or was left behind by a killed agent.
func TestRootFallsBack(t *testing.T) {
	asRoot(t)
	dir := serve(t, &fake{})
	if _, err := NewClient(dir).Status(context.Background()); err != nil {
		t.Error(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, RootSocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := NewClient(dir).Status(context.Background()); err != nil {
		t.Error(err)
	}
	again, err := ListenRoot(dir)
	if err != nil {
		t.Fatal("the next agent cannot create the socket: ", err)
	}
	again.Close()
}
