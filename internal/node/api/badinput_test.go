package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// talk sends bytes to the server, reads the given number of answers, and returns their statuses and bodies.
func talk(t *testing.T, dir, request string, answers int) (codes []int, bodies []string) {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, request) // the test ignores the error, because the server may stop reading
	r := bufio.NewReader(c)
	for range answers {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("after %d answers: %v", len(codes), err)
		}
		body, _ := io.ReadAll(resp.Body)
		codes, bodies = append(codes, resp.StatusCode), append(bodies, string(body))
	}
	return codes, bodies
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: caelumd\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// TestMalformedRequests checks that the server rejects malformed requests without calling the handler, and that each
// answer gives the reason.
func TestMalformedRequests(t *testing.T) {
	f := &fake{}
	dir := serve(t, f)
	const path, unreadable = "/v1/jobs/12/lease", "couldn't read the lease request"
	release := func(query string) string {
		return "DELETE " + path + query + " HTTP/1.1\r\nHost: c\r\n\r\n"
	}
	longHeader := "GET /v1/status HTTP/1.1\r\nHost: c\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"
	endless := "POST " + path + " HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"
	many := "0"
	for i := 1; i <= 256; i++ {
		many += fmt.Sprint(",", i)
	}
	for name, c := range map[string]struct {
		request string
		code    int
		says    string
	}{
		"10 MB":               {post(path, `{"partition":"`+strings.Repeat("x", 10<<20)), 400, "too large"},
		"no body":             {post(path, ""), 400, "EOF"},
		"half a body":         {post(path, `{"restart":0,"slots":[0`), 400, "unexpected EOF"},
		"null":                {post(path, "null"), 400, "the number of slots is 0"},
		"a list":              {post(path, "[]"), 400, unreadable},
		"two requests in one": {post(path, `{"slots":[0]}{"slots":[1]}`), 400, "unexpected data after the request"},
		"a negative restart": {post(path, `{"restart":-1,"slots":[0]}`), 400,
			"the restart count -1 is not between 0 and 65535"},
		"a huge restart":          {post(path, `{"restart":65536,"slots":[0]}`), 400, "restart count 65536"},
		"a restart beyond an int": {post(path, `{"restart":99999999999999999999,"slots":[0]}`), 400, unreadable},
		"a negative uid":          {post(path, `{"uid":-1,"slots":[0]}`), 400, unreadable},
		"no slots":                {post(path, `{"slots":[]}`), 400, "is 0, but must be between 1 and 256"},
		"too many slots":          {post(path, `{"slots":[`+many+`]}`), 400, "the number of slots is 257"},
		"a slot twice":            {post(path, `{"slots":[3,3]}`), 400, "slot 3"},
		"a negative slot":         {post(path, `{"slots":[-1]}`), 400, "slot -1"},
		"a path as the SLUID":     {post(path, `{"slots":[0],"sluid":"../x"}`), 400, "is not 1 to 32 letters"},
		"a long SLUID": {post(path, `{"slots":[0],"sluid":"`+strings.Repeat("s", 33)+`"}`), 400,
			"is not 1 to 32 letters"},
		"job 0":                   {post("/v1/jobs/0/lease", `{"slots":[0]}`), 400, "greater than 0"},
		"job -1":                  {post("/v1/jobs/-1/lease", `{"slots":[0]}`), 400, "the job id"},
		"job 2^32":                {post("/v1/jobs/4294967296/lease", `{"slots":[0]}`), 400, "the job id"},
		"a job with a shell word": {post("/v1/jobs/$(id)/lease", `{"slots":[0]}`), 400, "the job id"},
		"a path in the job":       {"GET /v1/jobs/..%2f..%2fstatus HTTP/1.1\r\nHost: c\r\n\r\n", 400, "the job id"},
		"release without restart": {release(""), 400, "couldn't read the restart parameter"},
		"release with restart -1": {release("?restart=-1"), 400, "couldn't read the restart parameter"},
		"release, huge restart":   {release("?restart=65536"), 400, "couldn't read the restart parameter"},
		"another method":          {"PUT /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\nContent-Length: 0\r\n\r\n", 405, ""},
		"another path":            {"GET /v2/status HTTP/1.1\r\nHost: c\r\n\r\n", 404, ""},
		"a long header":           {longHeader, 431, ""},
		"not HTTP":                {"caelum-lease 1\njob 12\n\n", 400, ""},
		"a chunk without an end":  {endless, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			codes, bodies := talk(t, dir, c.request, 1)
			if codes[0] != c.code || !strings.Contains(bodies[0], c.says) {
				t.Errorf("%d %s, want %d and %q", codes[0], bodies[0], c.code, c.says)
			}
		})
	}
	if len(f.asked) != 0 || len(f.released) != 0 {
		t.Errorf("the handler was called: leases %+v, releases %v", f.asked, f.released)
	}
}

// TestUnusualRequests checks that the server accepts unusual but valid requests: several calls on one connection, a
// chunked body, and a key that only a newer plugin sends.
func TestUnusualRequests(t *testing.T) {
	f := &fake{}
	dir := serve(t, f)
	chunked := "POST /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"4\r\n{\"sl\r\nb\r\nots\":[1,2]}\r\n0\r\n\r\n"
	codes, _ := talk(
		t,
		dir,
		post("/v1/jobs/12/lease", `{"slots":[0],"colour":"blue"}`)+chunked+"GET /v1/status HTTP/1.1\r\nHost: c\r\n\r\n",
		3,
	)
	if fmt.Sprint(codes) != "[200 200 200]" || len(f.asked) != 2 ||
		fmt.Sprint(f.asked[0].Slots, f.asked[1].Slots) != "[0] [1 2]" {
		t.Errorf("%v, asked %+v", codes, f.asked)
	}
}

// TestFullDiskIsTemporary checks that the server replies with status 503 if a disk is full, so that the prolog repeats
// the call. The message must contain the path of the file.
func TestFullDiskIsTemporary(t *testing.T) {
	f := &fake{
		failing: []error{
			fmt.Errorf(
				"couldn't write the lease file: %w",
				&os.PathError{Op: "open", Path: "/run/caelum/jobs/.new-1", Err: syscall.ENOSPC},
			),
		},
	}
	c := NewClient(serve(t, f))
	_, err := c.Lease(context.Background(), 1, LeaseRequest{Slots: []int{0}})
	var e *Error
	if !errors.As(err, &e) || e.Code != 503 ||
		!strings.Contains(e.Message, "/run/caelum/jobs/.new-1: no space left on device") {
		t.Errorf("%v", err)
	}
}

// dialAs connects as another user. The kernel uses the user id of the thread that connects.
func dialAs(t *testing.T, dir string, uid int) net.Conn {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	effective := func(uid int) {
		const same = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			panic(errno)
		}
	}
	effective(uid)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, SocketName)})
	}
	effective(0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// publicDir returns a new directory to which other users have access.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the test created both directories with mode 0700
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// countOpen returns the number of connections that the server has not closed. It reads from each connection without
// waiting; if the connection is closed, the read immediately returns the end of file.
func countOpen(t *testing.T, all []net.Conn) (n int) {
	t.Helper()
	for _, c := range all {
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Read(func(fd uintptr) bool {
			if _, err := syscall.Read(int(fd), make([]byte, 1)); err == syscall.EAGAIN {
				n++
			}
			return true
		})
	}
	return n
}

// TestIdleConnections opens many idle connections as other users. The server must reject other users' connections above
// the limits, but never root's.
func TestIdleConnections(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to connect as other users")
	}
	f := &fake{}
	dir := publicDir(t)
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(f)
	s.ReadHeaderTimeout = time.Hour // longer than the test, so that the connections remain open
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	root := NewClient(dir)
	served := func(after string) {
		t.Helper()
		if err := root.Release(context.Background(), 12, 0); err != nil {
			t.Fatalf("a call by root fails after %s: %v", after, err)
		}
	}
	var one, others []net.Conn
	for range 1500 {
		c := dialAs(t, dir, 20001)
		io.WriteString(c, "POST /v1/jobs/12/lease HTTP/1.1\r\nX-a: ") // fails if the connection is already closed
		one = append(one, c)
	}
	served("1500 connections of one user")
	if n := countOpen(t, one); n != maxPerUser {
		t.Errorf("one user has %d open connections, want %d", n, maxPerUser)
	}
	for uid := range 1500 {
		others = append(others, dialAs(t, dir, 100000+uid))
	}
	served("1500 connections of as many users")
	if n := countOpen(t, others) + maxPerUser; n != maxAllUsers {
		t.Errorf("all users together have %d open connections, want %d", n, maxAllUsers)
	}
	// Once a user closes connections, other users must be able to connect again.
	for _, c := range one {
		c.Close()
	}
	for {
		c := dialAs(t, dir, 20002)
		io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n")
		if answer, _ := io.ReadAll(c); strings.Contains(string(answer), `"node":"n1"`) {
			break
		}
	}
}

// TestSlowClients checks that the server disconnects a client that does not complete a call.
func TestSlowClients(t *testing.T) {
	for name, begun := range map[string]string{
		"nothing":       "",
		"half a header": "POST /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\nX-a",
		"half a body":   "POST /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\nContent-Length: 100\r\n\r\n{",
		"after a call":  "GET /v1/status HTTP/1.1\r\nHost: c\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			dir := t.TempDir()
			l, err := Listen(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := NewServer(f)
			if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.IdleTimeout == 0 {
				t.Error("the server has no timeout")
			}
			const short = 20 * time.Millisecond
			s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout = short, short, short
			go s.Serve(l)
			t.Cleanup(func() { s.Close() })
			c, err := net.Dial("unix", filepath.Join(dir, SocketName))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, begun)
			c.SetReadDeadline(time.Now().Add(time.Minute)) // this deadline only prevents a broken test from hanging
			// The connection is reset if the server closes it before it has read all of the request.
			if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server did not close the connection: %v", err)
			}
			if len(f.asked) > 0 {
				t.Errorf("the handler was called: %+v", f.asked)
			}
		})
	}
}

// refuser is a fake that also counts the rejected calls.
type refuser struct {
	*fake
	refused atomic.Int32
	by      atomic.Uint32
}

func (w *refuser) Refused(uid uint32, call string) {
	w.refused.Add(1)
	w.by.Store(uid)
}

// TestNamespaceRootIsNotRoot checks that the server treats root in a user namespace as the user who created the
// namespace.
func TestNamespaceRootIsNotRoot(t *testing.T) {
	if dir := os.Getenv("CAELUM_TEST_NAMESPACE"); dir != "" {
		err := NewClient(dir).Release(context.Background(), 12, 0)
		var e *Error
		if os.Getuid() != 0 || !errors.As(err, &e) || e.Code != 403 {
			t.Fatalf("as uid %d: %v", os.Getuid(), err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root to map another user's id")
	}
	w := &refuser{fake: &fake{}}
	dir := publicDir(t)
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(w)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	child := filepath.Join(dir, "child")
	if err := os.WriteFile(child, text, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(child, "-test.run=^TestNamespaceRootIsNotRoot$")
	cmd.Dir, cmd.Env = "/", []string{"CAELUM_TEST_NAMESPACE=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if w.refused.Load() != 1 || w.by.Load() != 65534 || len(w.released) > 0 {
		t.Errorf("%d rejected calls, the last by user %d; releases %v", w.refused.Load(), w.by.Load(), w.released)
	}
}
