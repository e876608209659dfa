package gpu

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asHolder names an environment variable whose value is a key of ways. If it is set, the test binary acts as a
// process that has a device open.
const asHolder = "HOLDERS_TEST_WAY"

func TestMain(m *testing.M) {
	if way := os.Getenv(asHolder); way != "" {
		beHolder(way, os.Getenv("HOLDERS_TEST_PATH"))
		return
	}
	os.Exit(m.Run())
}

const nobody = 65534

// beHolder opens a device in the given way, prints a line, and waits for the end of its input.
func beHolder(way, path string) {
	ways[way](path)
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
}

// ways maps names to the ways in which a process can have a device open. Before it calls one of these functions, the
// process changes to the user id in HOLDERS_TEST_UID.
var ways = map[string]func(path string){
	"nothing": func(string) { becomeUser() },
	"open": func(path string) {
		becomeUser()
		openDevice(path, unix.O_RDONLY|unix.O_NOCTTY)
	},
	"O_PATH": func(path string) {
		becomeUser()
		openDevice(path, unix.O_PATH)
	},
	"thread":   holdInThread,
	"tracer":   traceHolder,
	"detached": holdDetached,
}

// holdInThread opens the device in a thread that has its own descriptor table.
func holdInThread(path string) {
	becomeUser()
	done := make(chan bool)
	go func() {
		runtime.LockOSThread()
		must(unix.Unshare(unix.CLONE_FILES))
		openDevice(path, unix.O_RDONLY|unix.O_NOCTTY)
		done <- true
		select {}
	}()
	<-done
}

// traceHolder traces a process that has the device open.
func traceHolder(path string) {
	becomeUser()
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{
		asHolder + "=open",
		"HOLDERS_TEST_PATH=" + path,
		"HOLDERS_TEST_UID=" + os.Getenv("HOLDERS_TEST_UID"),
	}
	cmd.Stdin = os.Stdin
	out, _ := cmd.StdoutPipe()
	must(cmd.Start())
	bufio.NewReader(out).ReadString('\n')
	const seize, traceExit = 0x4206, 0x40 // PTRACE_SEIZE, PTRACE_O_TRACEEXIT of linux/ptrace.h
	pid := uintptr(cmd.Process.Pid)
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, seize, pid, 0, traceExit, 0, 0); errno != 0 {
		must(errno)
	}
}

// holdDetached opens the device on a mount that is not part of any namespace.
func holdDetached(path string) {
	bound := path + ".bound"
	must(os.WriteFile(bound, nil, 0o600))
	must(unix.Mount(path, bound, "", unix.MS_BIND, ""))
	openDevice(bound, unix.O_RDONLY|unix.O_NOCTTY)
	must(unix.Unmount(bound, unix.MNT_DETACH))
	becomeUser()
}

func openDevice(path string, flags int) {
	_, err := unix.Open(path, flags, 0)
	must(err)
}

func becomeUser() {
	var uid int
	fmt.Sscan(os.Getenv("HOLDERS_TEST_UID"), &uid)
	must(syscall.Setresuid(uid, uid, uid))
}

// must ends the process if err is not nil, printing the error as the line that the test reads.
func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// holder starts a process of the given user that has the device at path open.
func holder(t testing.TB, way, path string, uid uint32) (pid int, end func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{asHolder + "=" + way, "HOLDERS_TEST_PATH=" + path, fmt.Sprint("HOLDERS_TEST_UID=", uid)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if way == "detached" {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	return begin(t, cmd, "ready\n")
}

// begin starts a program that ends with its input, and waits until it prints the given line.
func begin(t testing.TB, cmd *exec.Cmd, ready string) (pid int, end func()) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		in.Close()
		cmd.Wait()
	}
	t.Cleanup(end)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != ready {
		t.Fatalf("%v: %q", cmd, line)
	}
	return cmd.Process.Pid, end
}

// node creates a device file for d whose name does not identify the device.
func node(t testing.TB, d Device) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to create device nodes and processes of another user")
	}
	dir, err := os.MkdirTemp("", "holders")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "socket:[1]")
	if err := unix.Mknod(path, unix.S_IFCHR|0o444, int(unix.Mkdev(d.Major, d.Minor))); err != nil {
		t.Fatal(err)
	}
	os.Chmod(path, 0o444)
	return path
}

// full is the device of /dev/full, which no other process on the machine has open.
var full = Device{1, 7}

func TestHolders(t *testing.T) {
	path := node(t, full)
	s := &Processes{Proc: "/proc"}
	for _, c := range []struct {
		way  string
		uid  uint32
		open bool
	}{
		{way: "nothing", uid: nobody},
		{way: "open", uid: nobody, open: true},
		{way: "open", uid: 0}, // a scan ignores root's processes
		{way: "O_PATH", uid: nobody},
		{way: "thread", uid: nobody, open: true},
		{way: "detached", uid: nobody, open: true},
	} {
		t.Run(fmt.Sprint(c.way, c.uid), func(t *testing.T) {
			pid, end := holder(t, c.way, path, c.uid)
			p, _ := s.Read(pid)
			held := scanFor(t, s)
			if has := contains(held.Open[full], pid); has != c.open {
				t.Errorf("open: %v, want %v", held.Open, c.open)
			}
			for _, h := range held.Open[full] {
				if h.PID == pid && (h.Start != p.Start || h.UIDs != p.UIDs) {
					t.Errorf("%+v, want %+v", h, p)
				}
			}
			end()
			if held := scanFor(t, s); contains(held.Open[full], pid) {
				t.Errorf("the scan returns a process that has ended: %v", held)
			}
		})
	}
}

func scanFor(t *testing.T, s *Processes) Held {
	t.Helper()
	held, err := s.Scan([]Device{full})
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func contains(list []Process, pid int) bool {
	for _, h := range list {
		if h.PID == pid {
			return true
		}
	}
	return false
}

// TestHoldersLimit checks a user whose processes have too many descriptors. The user must be in Held.Unread, and the
// scan must still read other users' processes.
func TestHoldersLimit(t *testing.T) {
	path := node(t, full)
	s := &Processes{Proc: "/proc", Limit: processCost}
	holder(t, "open", path, nobody)
	other, _ := holder(t, "open", path, 4711)
	if held := scanFor(t, s); held.Unread[nobody].Reason == "" || len(held.Open) > 0 {
		t.Errorf("%+v", held)
	}
	s.Limit = 0
	if held := scanFor(t, s); held.Unread[nobody].Reason != "" || !contains(held.Open[full], other) {
		t.Errorf("%+v", held)
	}
}

// TestScansAreShared checks that calls that wait for a scan share the next one, and that a later call does not get it.
func TestScansAreShared(t *testing.T) {
	s := &Processes{Proc: t.TempDir()}
	fakeProcess(t, s.Proc, 11, "5\t5\t5\t5", map[string][2]string{"3": {"/dev/full", "flags:\t02\n"}})
	s.running.Lock() // emulates a running scan
	results := make(chan Held)
	for _, d := range []Device{{1, 3}, full, {1, 5}} {
		go func() {
			held, _ := s.Scan([]Device{d})
			results <- held
		}()
	}
	for waiting := 0; waiting < 3; runtime.Gosched() {
		s.mu.Lock()
		if s.next[false] != nil {
			waiting = len(s.next[false].devices)
		}
		s.mu.Unlock()
	}
	s.running.Unlock()
	for range 3 {
		if held := <-results; len(held.Open[full]) != 1 {
			t.Errorf("%+v, want the device of the other call as well", held)
		}
	}
	if held, err := s.Scan([]Device{{1, 3}}); err != nil || len(held.Open) > 0 {
		t.Errorf("%+v, %v", held, err)
	}
}

// TestScanBudget checks that a scan does not read processes after its time, and fails after twice this time.
func TestScanBudget(t *testing.T) {
	s := &Processes{Proc: t.TempDir(), Budget: time.Hour}
	fakeProcess(t, s.Proc, 11, "5\t5\t5\t5", map[string][2]string{"3": {"/dev/full", "flags:\t02\n"}})
	for _, late := range []bool{false, true} {
		deadline := time.Now().Add(time.Minute)
		if late {
			deadline = time.Now().Add(-time.Minute)
		}
		held := s.scan([]int{11}, []Device{full}, false, deadline)
		if (held.Unread[5].Reason != "") != late || (len(held.Open) == 0) != late {
			t.Errorf("late %v: %+v", late, held)
		}
	}
	s.Budget = 1
	if held, err := s.Scan([]Device{full}); err == nil {
		t.Errorf("%+v", held)
	}
}

// subordinate starts a process with the user id 100000+id in a user namespace of nobody.
func subordinate(t *testing.T, id int) (pid int) {
	t.Helper()
	start := func(args ...string) int {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		pid, _ := begin(t, cmd, "\n")
		return pid
	}
	const script = "echo; read x"
	outer := start("setpriv", "--reuid", fmt.Sprint(nobody), "--clear-groups", "unshare", "-U", "sh", "-c", script)
	// newuidmap and newgidmap write the same lines for a user with subordinate ids.
	for _, file := range []string{"uid_map", "gid_map"} {
		path := fmt.Sprintf("/proc/%d/%s", outer, file)
		if err := os.WriteFile(path, []byte("0 100000 65536"), 0); err != nil {
			t.Fatal(err)
		}
	}
	return start("nsenter", "-t", fmt.Sprint(outer), "-U", "-S", fmt.Sprint(id), "sh", "-c", script)
}

// TestSubordinateUsers checks that the processes in a user's namespaces belong to the user, whatever their ids are.
func TestSubordinateUsers(t *testing.T) {
	node(t, full) // skips the test without root
	s := &Processes{Proc: "/proc", Limit: 40}
	for id := range 3 {
		pid := subordinate(t, id)
		if p, err := s.Read(pid); err != nil || p.UIDs[0] != uint32(100000+id) || p.Owner != nobody || !p.Is(nobody) {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if held := scanFor(t, s); held.Unread[nobody].Reason == "" || held.Unread[100000].Reason != "" {
		t.Errorf("%+v", held.Unread)
	}
	c := &scan{s: s, limit: 40, spent: map[uint32]int{nobody: 41}, stopped: true, deadline: time.Now().Add(time.Hour)}
	if r := c.process(subordinate(t, 3)); r.Owner != nobody || r.unread.Reason == "" || r.Command != "" {
		t.Errorf("beyond the limit: %+v, want a process that was not read", r)
	}
	s.Limit = 0
	if held := scanFor(t, s); held.Unread[nobody].Reason != "" {
		t.Errorf("%+v", held.Unread)
	}
}

// TestScanCost checks that data of processes other than descriptors count towards the limit: groups and threads.
func TestScanCost(t *testing.T) {
	for name, c := range map[string]struct {
		groups, threads int
		over            bool
	}{
		"few":     {16, 1, false},
		"groups":  {65536, 1, true},
		"threads": {16, 300, true},
	} {
		s := &Processes{Proc: t.TempDir(), Limit: 100}
		fakeProcess(t, s.Proc, 11, "5\t5\t5\t5", nil)
		dir := filepath.Join(s.Proc, "11")
		status := fmt.Sprintf("Name:\ta\nUid:\t5\t5\t5\t5\nGroups:\t%s\nThreads:\t%d\n",
			strings.Repeat("5 ", c.groups), c.threads)
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o644); err != nil {
			t.Fatal(err)
		}
		for tid := range c.threads {
			os.MkdirAll(filepath.Join(dir, "task", fmt.Sprint(11+tid), "fd"), 0o755)
		}
		if held := scanFor(t, s); (held.Unread[5].Reason != "") != c.over {
			t.Errorf("%s: %+v", name, held.Unread)
		}
	}
}

// fakeProcess writes the files of an emulated process into the proc directory.
func fakeProcess(t *testing.T, proc string, pid int, uids string, fds map[string][2]string) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	for _, sub := range []string{"fd", "fdinfo"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("status", "Name:\ta b\nUid:\t"+uids+"\nThreads:\t1\n")
	os.Symlink("/bin/true", filepath.Join(dir, "exe"))
	write("stat", fmt.Sprint(pid, " (a b) S", strings.Repeat(" 7", 30)))
	for fd, x := range fds {
		os.Symlink(x[0], filepath.Join(dir, "fd", fd))
		write("fdinfo/"+fd, x[1])
	}
}

// TestHoldersOfMixedIDs checks that a scan reads the descriptors of a setuid program that a user started.
func TestHoldersOfMixedIDs(t *testing.T) {
	proc := t.TempDir()
	const device = "pos:\t0\nflags:\t02\nmnt_id:\t7\nino:\t5\n"
	fakeProcess(t, proc, 10, "0\t0\t0\t0", map[string][2]string{"3": {"/dev/full", device}})
	fakeProcess(t, proc, 11, "5\t0\t0\t0", map[string][2]string{"3": {"/dev/full", device}})
	held := scanFor(t, &Processes{Proc: proc})
	if len(held.Open[full]) != 1 || held.Open[full][0].String() != `pid 11, uid 5, "a b"` {
		t.Errorf("%+v", held)
	}
}

// BenchmarkScan scans 2,000 processes of one user, each with 50 descriptors: 30 files and 20 sockets.
func BenchmarkScan(b *testing.B) {
	path := node(b, full)
	const processes = 2000
	script := fmt.Sprintf(`import os, sys, socket, time
os.setresuid(%d, %d, %d)
keep = [os.open("/etc/passwd", os.O_RDONLY) for _ in range(27)] + [socket.socket() for _ in range(20)]
for _ in range(%d - 1):
    if os.fork() == 0: break
else: print("ready", flush=True)
time.sleep(3600)`, nobody, nobody, nobody, processes)
	cmd := exec.Command("python3", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		b.Fatalf("%q", line)
	}
	pid, _ := holder(b, "open", path, nobody)
	s := &Processes{Proc: "/proc", Limit: 1 << 30}
	for b.Loop() {
		held, err := s.Scan([]Device{full})
		if err != nil || !contains(held.Open[full], pid) {
			b.Fatal(held, err)
		}
	}
}

// TestHangingProcess checks that a scan skips a process whose descriptors cannot be read because a file system does not
// respond, and that the next scan does not wait for this process.
func TestHangingProcess(t *testing.T) {
	s := &Processes{Proc: t.TempDir()}
	device := map[string][2]string{"3": {"/dev/full", "flags:\t02\n"}}
	fakeProcess(t, s.Proc, 11, "5\t5\t5\t5", device)
	pipe := filepath.Join(s.Proc, "11/fdinfo/3")
	os.Remove(pipe)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(pipe, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil { // ends the reader
			time.Sleep(10 * time.Millisecond)
			f.Close()
		}
	})
	if held := scanFor(t, s); held.Unread[5].Reason != hangs {
		t.Errorf("%+v", held)
	}
	fakeProcess(t, s.Proc, 12, "6\t6\t6\t6", device)
	if held := scanFor(t, s); held.Unread[5].Reason != hangs || len(held.Open[full]) != 1 {
		t.Errorf("the next scan: %+v", held)
	}
}
