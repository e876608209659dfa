package gpu

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadProcess(t *testing.T) {
	s := &Processes{Proc: "/proc"}
	p, err := s.Read(os.Getpid())
	if err != nil || p.Start == 0 || p.Command == "" || !p.Is(uint32(os.Getuid())) || p.Root() != (os.Getuid() == 0) {
		t.Errorf("%+v: %v", p, err)
	}
	again, err := s.Read(os.Getpid())
	if err != nil || again.Start != p.Start {
		t.Errorf("%+v: %v", again, err)
	}
	if _, err := s.Read(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
	if paths, err := s.Cgroups(os.Getpid()); err != nil || len(paths) == 0 || paths[0][0] != '/' {
		t.Errorf("%q: %v", paths, err)
	}
}

func TestKill(t *testing.T) {
	s := &Processes{Proc: "/proc"}
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p, err := s.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	all := func(Process) bool { return true }
	none := func(Process) bool { return false }
	later := p
	later.Start++
	for name, kill := range map[string]func() (ended, left []Process){
		"stillMeant returns false":          func() (_, _ []Process) { return s.Kill([]Process{p}, none) },
		"a later process with the same pid": func() (_, _ []Process) { return s.Kill([]Process{later}, all) },
	} {
		if gone, left := kill(); len(gone)+len(left) > 0 {
			t.Errorf("%s: ended %v, left %v", name, gone, left)
		}
	}
	asked := 0
	s.Kill(slices.Repeat([]Process{p}, maxKilled+1), func(Process) bool { asked++; return false })
	if asked != maxKilled {
		t.Errorf("one call considers %d processes, want %d", asked, maxKilled)
	}
	select {
	case err := <-ended:
		t.Fatalf("Kill ended the process: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if gone, left := s.Kill([]Process{p}, all); len(gone) != 1 || len(left) > 0 {
		t.Errorf("ended %v, left %v", gone, left)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
	if gone, left := s.Kill([]Process{p}, all); len(gone)+len(left) > 0 {
		t.Errorf("a process that has ended: %v, %v", gone, left)
	}
}

// TestKillTraced checks that Kill ends a traced process. With PTRACE_O_TRACEEXIT, a killed process keeps its files open
// until its tracer ends.
func TestKillTraced(t *testing.T) {
	path := node(t, full)
	s := &Processes{Proc: "/proc"}
	tracer, _ := holder(t, "tracer", path, nobody)
	var traced []Process
	for _, h := range scanFor(t, s).Open[full] {
		if s.statusOf(h.PID, "TracerPid:") != 0 {
			traced = append(traced, h)
		}
	}
	if len(traced) != 1 || traced[0].PID == tracer {
		t.Fatalf("want one traced process with the file open, got %v", traced)
	}
	// On a busy machine, the kernel may need more time than Kill waits, so the test repeats Kill, as the agent does
	// at its next scan.
	for tries := 0; ; tries++ {
		_, left := s.Kill(traced, func(Process) bool { return true })
		if len(left) == 0 {
			break
		}
		if tries == 20 {
			t.Fatalf("after 21 calls to Kill, %v have not ended", left)
		}
	}
	if contains(scanFor(t, s).Open[full], traced[0].PID) {
		t.Errorf("%v still has the file open", traced[0])
	}
}
