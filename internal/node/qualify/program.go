package qualify

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/node/gpu"
)

// program lets the CUDA program use a slice (A10, A12, A13).
func (r *run) program(ctx context.Context, c *card) error {
	if len(r.opt.CUDA) == 0 {
		r.skipProgram("--cuda names no program")
		return nil
	}
	s, err := r.createAny(c)
	if s == nil || err != nil {
		return err
	}
	if s.ci == nil || s.uuid == "" {
		return r.destroy(s)
	}
	cmd := exec.Command(r.opt.CUDA[0], r.opt.CUDA[1:]...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+s.uuid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.skipProgram("couldn't start the CUDA program: %v", err)
		return r.destroy(s)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	seen := r.appears(ctx, s, cmd.Process.Pid, ended)
	ret := s.ci.Destroy()
	if ret == nvml.SUCCESS {
		s.ci = nil
	}
	s.c.facts.errors["dci with a client"] = nvml.ErrorString(ret)
	if running(ended) {
		r.judge(s, seen, ret)
	} else {
		r.skipProgram("the CUDA program ended after less than %v", programLimit)
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	return r.destroy(s)
}

func (r *run) skipProgram(format string, args ...any) {
	for _, id := range []string{"A10", "A12", "A13"} {
		r.rep.skip(id, format, args...)
	}
}

// judge compares what the driver shows of a running program, and its answer to the destroy of the program's compute
// instance, with the assumptions.
func (r *run) judge(s *slice, seen seen, ret nvml.Return) {
	switch {
	case ret == nvml.SUCCESS && !seen.found:
		r.skipProgram("the program did not use the slice within %v", programLimit)
		return
	case ret == nvml.SUCCESS:
		r.rep.differs("A10", "a compute instance was destroyed while a program used it")
	case ret == nvml.ERROR_IN_USE:
		r.rep.holds("A10", "a slice that a program used could not be destroyed, and all others could")
	default:
		r.rep.differs("A10", "the destroy of a compute instance in use answered %s", nvml.ErrorString(ret))
	}
	switch {
	case seen.found:
		r.rep.holds("A12", "the program that used the slice was in a list")
	case !seen.listed:
		r.rep.skip("A12", "the process list could not be read")
	default:
		r.rep.differs("A12", "a program used the slice, but was in no list")
	}
	want := fmt.Sprint(s.GI, " ", max(s.ciID, 0))
	switch seen.ids {
	case "":
		r.rep.skip("A13", "the process list did not show the program")
	case want:
		r.rep.holds("A13", "the process list has the instance ids of the program")
	default:
		r.rep.differs("A13", "the process list has the instance ids %s of the program, want %s", seen.ids, want)
	}
}

func running(ended chan struct{}) bool {
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

// programLimit is the time in which a CUDA program must begin to use its slice.
const programLimit = 10 * time.Second

// seen is what root can see of a program.
type seen struct {
	found  bool   // the process list or a scan of the descriptors shows the program
	listed bool   // the process list was readable
	ids    string // the program's instance ids in the process list
}

// appears waits until the program uses the slice, and returns what the process list and a scan of the descriptors show.
func (r *run) appears(ctx context.Context, s *slice, pid int, ended chan struct{}) (see seen) {
	devices, err := r.caps.Devices(s.c.minor, gpu.Instance{GI: s.GI, CIs: []int{s.ciID}})
	scan := gpu.Processes{Proc: "/proc"}
	for end := time.Now().Add(programLimit); time.Now().Before(end) && ctx.Err() == nil && running(ended); {
		list, ret := s.c.dev.GetComputeRunningProcesses()
		if see.listed = ret == nvml.SUCCESS; see.listed {
			for _, p := range list {
				if inGroup(int(p.Pid), pid) {
					return seen{true, true, fmt.Sprint(p.GpuInstanceId, " ", p.ComputeInstanceId)}
				}
			}
		}
		if err == nil {
			if held, e := scan.ScanRoot(devices); e == nil {
				for _, all := range held.Open {
					own := func(p gpu.Process) bool { return inGroup(p.PID, pid) }
					see.found = see.found || slices.ContainsFunc(all, own)
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	return see
}

// inGroup reports whether a process belongs to the program's process group.
func inGroup(pid, group int) bool {
	g, err := syscall.Getpgid(pid)
	return err == nil && g == group
}
