package qualify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// look is the answer of the helper's "look" command.
type look struct {
	Open      []string // the files that the helper could open
	Init      string
	Processes string // the answer of the process list of a GPU with MIG mode on
	Memory    string // that of its memory information
}

// HelperCommand is the hidden command of caelumd that runs Helper.
const HelperCommand = "qualify-helper"

// Helper is the second process of a run: a run starts its own program again. It serves one command and ends when its
// standard input ends:
//
//	look LIBRARY GPU FILE...              what this user can open and read
//	carve LIBRARY GPU PROFILE START SIZE  create an instance; destroy it when standard input ends
//	hold FILE                             keep a file open
//	allocate LIBRARY MIB KIND             allocate memory of a GPU with libcuda.so.1
func Helper(args []string, in io.Reader, out io.Writer) error {
	number := func(k int) int { n, _ := strconv.Atoi(args[k]); return n }
	switch {
	case len(args) >= 3 && args[0] == "look":
		return json.NewEncoder(out).Encode(lookAround(args[1], number(2), args[3:]))
	case len(args) == 6 && args[0] == "carve":
		lib := open(args[1])
		if ret := lib.Init(); ret != nvml.SUCCESS {
			return errors.New(nvml.ErrorString(ret))
		}
		defer lib.Shutdown()
		dev, ret := lib.DeviceGetHandleByIndex(number(2))
		if ret != nvml.SUCCESS {
			return errors.New(nvml.ErrorString(ret))
		}
		gi, ret := dev.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(number(3))},
			&nvml.GpuInstancePlacement{Start: uint32(number(4)), Size: uint32(number(5))})
		if ret != nvml.SUCCESS {
			return errors.New(nvml.ErrorString(ret))
		}
		fmt.Fprintln(out, "done")
		io.Copy(io.Discard, in)
		if ret := gi.Destroy(); ret != nvml.SUCCESS {
			return errors.New(nvml.ErrorString(ret))
		}
		return nil
	case len(args) == 2 && args[0] == "hold":
		fd, err := openDevice(args[1])
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		fmt.Fprintln(out, "done")
		io.Copy(io.Discard, in)
		return nil
	case len(args) == 4 && args[0] == "allocate":
		if err := json.NewEncoder(out).Encode(allocate(args[1], number(2), args[3] == "managed")); err != nil {
			return err
		}
		io.Copy(io.Discard, in)
		return nil
	}
	return errors.New("this command is part of caelumd qualify and not for administrators")
}

// openDevice opens a device file. A device without a driver gets a descriptor that only refers to the file, which the
// emulator counts as a use of the GPU.
func openDevice(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

func lookAround(library string, gpu int, files []string) look {
	var l look
	for _, path := range files {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOENT) {
			l.Open = append(l.Open, path) // even if the device has no driver: the permissions are checked before
		}
	}
	lib := open(library)
	ret := lib.Init()
	l.Init = answer(ret)
	if ret != nvml.SUCCESS {
		return l
	}
	defer lib.Shutdown()
	dev, ret := lib.DeviceGetHandleByIndex(gpu)
	if ret != nvml.SUCCESS {
		l.Init = answer(ret)
		return l
	}
	_, ret = dev.GetComputeRunningProcesses()
	l.Processes = answer(ret)
	_, ret = dev.GetMemoryInfo()
	l.Memory = answer(ret)
	return l
}

// answer returns a return code's text, or "" for SUCCESS.
func answer(ret nvml.Return) string {
	if ret == nvml.SUCCESS {
		return ""
	}
	return nvml.ErrorString(ret)
}

func open(path string) nvml.Interface {
	if path == "" {
		return nvml.New()
	}
	return nvml.New(nvml.WithLibraryPath(path))
}

// nobody is the user id of the checks of an ordinary user.
const nobody = 65534

// helper is a running Helper.
type helper struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// start runs the helper, as the user nobody without capabilities if user is true.
func (r *run) start(user bool, args ...string) (*helper, error) {
	cmd := r.command(args...)
	if user {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Dir = "/"
	}
	return launch(cmd)
}

// command returns the helper's command. The kernel kills it if this process is killed.
func (r *run) command(args ...string) *exec.Cmd {
	cmd := exec.Command(r.opt.Helper[0], append(r.opt.Helper[1:len(r.opt.Helper):len(r.opt.Helper)], args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func launch(cmd *exec.Cmd) (*helper, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &helper{cmd, in, bufio.NewReader(out)}, nil
}

// wait reads one line of the helper's output.
func (h *helper) wait() (string, error) { return h.out.ReadString('\n') }

// end closes the helper's input and waits for its end.
func (h *helper) end() error {
	h.in.Close()
	io.Copy(io.Discard, h.out)
	return h.cmd.Wait()
}

// lookAs runs "look" as the user nobody.
func (r *run) lookAs(c *card, files ...string) (look, error) {
	h, err := r.start(true, append([]string{"look", r.opt.Library, strconv.Itoa(c.index)}, files...)...)
	if err != nil {
		return look{}, err
	}
	var l look
	line, _ := h.wait()
	if err := h.end(); err != nil {
		return l, err
	}
	return l, json.Unmarshal([]byte(line), &l)
}
