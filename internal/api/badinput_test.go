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

// talk sends bytes to the agent and answers everything that comes back until the agent closes or the answers are all
// there.
func talk(t *testing.T, dir, request string, answers int) (codes []int, bodies []string) {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, request) // the agent may stop reading before the end
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

// What makes no sense is refused with the reason and never reaches the agent.
func TestMalformedRequests(t *testing.T) {
	f := &fake{}
	dir := serve(t, f)
	const path = "/v1/jobs/12/lease"
	many := "0"
	for i := 1; i <= 256; i++ {
		many += fmt.Sprint(",", i)
	}
	for name, c := range map[string]struct {
		request string
		code    int
		says    string
	}{
		"10 MB":                   {post(path, `{"partition":"`+strings.Repeat("x", 10<<20)), 400, "too large"},
		"no body":                 {post(path, ""), 400, "EOF"},
		"half a body":             {post(path, `{"restart":0,"slots":[0`), 400, "unexpected EOF"},
		"null":                    {post(path, "null"), 400, "0 slots"},
		"a list":                  {post(path, "[]"), 400, "couldn't read the lease request"},
		"two requests in one":     {post(path, `{"slots":[0]}{"slots":[1]}`), 400, "something follows it"},
		"a negative restart":      {post(path, `{"restart":-1,"slots":[0]}`), 400, "restart -1 is not between 0 and 65535"},
		"a huge restart":          {post(path, `{"restart":65536,"slots":[0]}`), 400, "restart 65536"},
		"a restart beyond an int": {post(path, `{"restart":99999999999999999999,"slots":[0]}`), 400, "couldn't read the lease request"},
		"a negative uid":          {post(path, `{"uid":-1,"slots":[0]}`), 400, "couldn't read the lease request"},
		"no slots":                {post(path, `{"slots":[]}`), 400, "0 slots are not between 1 and 256"},
		"too many slots":          {post(path, `{"slots":[`+many+`]}`), 400, "257 slots"},
		"a slot twice":            {post(path, `{"slots":[3,3]}`), 400, "slot 3"},
		"a negative slot":         {post(path, `{"slots":[-1]}`), 400, "slot -1"},
		"job 0":                   {post("/v1/jobs/0/lease", `{"slots":[0]}`), 400, "a job id is a number above 0"},
		"job -1":                  {post("/v1/jobs/-1/lease", `{"slots":[0]}`), 400, "a job id"},
		"job 2^32":                {post("/v1/jobs/4294967296/lease", `{"slots":[0]}`), 400, "a job id"},
		"a job in words":          {post("/v1/jobs/$(id)/lease", `{"slots":[0]}`), 400, "a job id"},
		"a path in the job":       {"GET /v1/jobs/..%2f..%2fstatus HTTP/1.1\r\nHost: c\r\n\r\n", 400, "a job id"},
		"release without restart": {"DELETE /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\n\r\n", 400, "couldn't read restart="},
		"release with restart -1": {"DELETE /v1/jobs/12/lease?restart=-1 HTTP/1.1\r\nHost: c\r\n\r\n", 400, "couldn't read restart="},
		"release, huge restart":   {"DELETE /v1/jobs/12/lease?restart=65536 HTTP/1.1\r\nHost: c\r\n\r\n", 400, "couldn't read restart="},
		"another method":          {"PUT /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\nContent-Length: 0\r\n\r\n", 405, ""},
		"another path":            {"GET /v2/status HTTP/1.1\r\nHost: c\r\n\r\n", 404, ""},
		"a long header":           {"GET /v1/status HTTP/1.1\r\nHost: c\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, ""},
		"not HTTP":                {"caelum-lease 1\njob 12\n\n", 400, ""},
		"a chunk without an end":  {"POST " + path + " HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			codes, bodies := talk(t, dir, c.request, 1)
			if codes[0] != c.code || !strings.Contains(bodies[0], c.says) {
				t.Errorf("%d %s, want %d and %q", codes[0], bodies[0], c.code, c.says)
			}
		})
	}
	if len(f.asked) != 0 || len(f.released) != 0 {
		t.Errorf("the agent was asked %+v, and to release %v", f.asked, f.released)
	}
}

// What is unusual and makes sense is served: calls one behind the other, a body in chunks, a key of a newer plugin's.
func TestUnusualRequests(t *testing.T) {
	f := &fake{}
	dir := serve(t, f)
	chunked := "POST /v1/jobs/12/lease HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"sl\r\nb\r\nots\":[1,2]}\r\n0\r\n\r\n"
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

// A disk is full until somebody makes room: the prolog shall ask again. A message in it says which folder.
func TestFullDiskMayPass(t *testing.T) {
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

// dialAs connects as another user: the kernel takes the id of a connection from the thread that connects.
func dialAs(t *testing.T, dir string, uid int) net.Conn {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	effective := func(uid int) {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
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

// publicDir is a folder that other users can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // both are the test's own, 0700
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// kept is how many of the connections the agent keeps. Those that it closed say so at once: it looks without waiting.
func kept(t *testing.T, all []net.Conn) (n int) {
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

// Users who hold connections and say nothing, or little, keep each other out in the end, and never root.
func TestIdleConnections(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to connect as others")
	}
	f := &fake{}
	dir := publicDir(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(f)
	s.ReadHeaderTimeout = time.Hour // they are there for as long as the test takes
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	root := NewClient(dir)
	served := func(after string) {
		t.Helper()
		if err := root.Release(context.Background(), 12, 0); err != nil {
			t.Fatalf("root is not served after %s: %v", after, err)
		}
	}
	var one, others []net.Conn
	for range 1500 {
		c := dialAs(t, dir, 20001)
		io.WriteString(c, "POST /v1/jobs/12/lease HTTP/1.1\r\nX-a: ") // fails when it is closed already
		one = append(one, c)
	}
	served("1500 connections of one user")
	if n := kept(t, one); n != maxPerUser {
		t.Errorf("one user holds %d connections, want %d", n, maxPerUser)
	}
	for uid := range 1500 {
		others = append(others, dialAs(t, dir, 100000+uid))
	}
	served("1500 connections of as many users")
	if n := kept(t, others) + maxPerUser; n != maxAllUsers {
		t.Errorf("all users hold %d connections, want %d", n, maxAllUsers)
	}
	// Who lets go makes room, also for others.
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

// Who does not finish what he began to say is cut off.
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
			l, err := Listen(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := NewServer(f)
			if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.IdleTimeout == 0 {
				t.Error("there is no limit")
			}
			s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
			go s.Serve(l)
			t.Cleanup(func() { s.Close() })
			c, err := net.Dial("unix", filepath.Join(dir, SocketName))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, begun)
			c.SetReadDeadline(time.Now().Add(time.Minute)) // only keeps a broken test from hanging
			if _, err := io.ReadAll(c); err != nil {
				t.Errorf("it is not cut off: %v", err)
			}
			if len(f.asked) > 0 {
				t.Errorf("the agent was asked %+v", f.asked)
			}
		})
	}
}

// watching is a fake that is told of what was refused.
type watching struct {
	*fake
	refused atomic.Int32
	by      atomic.Uint32
}

func (w *watching) Refused(uid uint32, call string) {
	w.refused.Add(1)
	w.by.Store(uid)
}

// Root of a user namespace is the user who made it.
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
	w := &watching{fake: &fake{}}
	dir := publicDir(t)
	l, err := Listen(dir)
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
		t.Errorf("refused %d calls, of user %d; released %v", w.refused.Load(), w.by.Load(), w.released)
	}
}
