package clients

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// build is the directory with the emulator and, in its subdirectory clients, the clients. The Makefile builds both.
var build, _ = filepath.Abs("../../../build")

// The Makefile sets CLIENTS_SUM to the checksum of the emulator and the clients. Because TestMain reads the variable,
// go test does not use a cached result after they have changed.
func TestMain(m *testing.M) {
	os.Getenv("CLIENTS_SUM")
	os.Exit(m.Run())
}

// driverVersion is the version that the emulator reports. nvidia-ctk looks for a libcuda.so with this version.
const driverVersion = "595.45.04"

// machine is an emulated machine. Its directory has these parts, which run mounts over those of the host:
//
//	dev      device files
//	host     the host's /proc
//	proc     the driver's files in /proc, and modules
//	pci      /sys/bus/pci/devices, with one device per GPU
//	driver   the root directory of the driver's libraries, for nvidia-ctk
type machine struct {
	*testing.T
	model
	dir string
}

// newMachine creates a machine with GPUs of the model. The arguments are options of `nvml-emulator init`.
func newMachine(t *testing.T, b model, gpus int, init ...string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, because only root may change instances")
	}
	m := &machine{T: t, model: b, dir: t.TempDir()}
	for _, name := range []string{"dev", "host"} {
		if err := os.Mkdir(m.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.makeDev()
	m.makePCI(gpus)
	m.write("proc/modules", "nvidia 1 0 - Live 0x0000000000000000\n")
	m.write("driver/usr/lib/x86_64-linux-gnu/libcuda.so."+driverVersion, "")
	m.link(filepath.Join(build, "libnvidia-ml.so.1"), "driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
	args := []string{"init", "--board", b.name, "--gpus", fmt.Sprint(gpus), "--dev-root", m.path("dev"), "--proc-root",
		m.path("proc")}
	m.ctl(append(args, init...)...)
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) write(name, text string) {
	m.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) link(target, name string) {
	m.Helper()
	if err := os.Symlink(target, m.path(name)); err != nil {
		m.Fatal(err)
	}
}

// makeDev creates the device files of /dev that Go programs open.
func (m *machine) makeDev() {
	m.Helper()
	for name, minor := range map[string]int{"null": 3, "zero": 5, "random": 8, "urandom": 9} {
		if err := syscall.Mknod(m.path("dev/"+name), syscall.S_IFCHR|0o666, 1<<8|minor); err != nil {
			m.Fatal(err)
		}
	}
}

// makePCI creates the part of sysfs from which clients read the GPUs' PCI ids. The emulator's PCI bus numbers begin
// with 0x10.
func (m *machine) makePCI(gpus int) {
	m.Helper()
	for i := range gpus {
		d := fmt.Sprintf("pci/0000:%02x:00.0/", 0x10+i)
		m.write(d+"vendor", fmt.Sprintf("0x%04x\n", m.pciID&0xffff))
		m.write(d+"device", fmt.Sprintf("0x%04x\n", m.pciID>>16))
		m.write(d+"class", "0x030200\n")
		m.write(d+"numa_node", "-1\n")
		m.write(d+"config", string([]byte{0xde, 0x10, byte(m.pciID >> 16), byte(m.pciID >> 24)})+
			strings.Repeat("\x00", 252))
		m.write(d+"resource", "0x0000000000000000 0x0000000000000000 0x0000000000000000\n")
		m.link("../../../../bus/pci/drivers/nvidia", d+"driver")
	}
}

// script replaces /dev, /proc and the PCI devices of sysfs by those of the machine, and then itself by the client. The
// new /proc has links to the host's files in /proc, because a kernel without modules has no /proc/modules that another
// file could be mounted over.
const script = `cd "$1" && shift &&
mount --bind dev /dev && mount --bind pci /sys/bus/pci/devices &&
mount --rbind /proc host && mount -t tmpfs tmpfs /proc && ln -s "$PWD"/host/* /proc &&
rm -f /proc/driver /proc/modules && ln -sf "$PWD"/proc/driver "$PWD"/proc/modules /proc && cd / && exec "$@"`

// command returns a command that runs a client on the machine, in its own mount namespace.
func (m *machine) command(client string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(client) {
		client = filepath.Join(build, "clients", client)
	}
	args = append([]string{"--mount", "sh", "-c", script, "sh", m.dir, client}, args...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(m.environment(), "PATH="+build+":"+os.Getenv("PATH"))
	return cmd
}

func (m *machine) environment() []string {
	return append(os.Environ(), "NVML_EMULATOR_STATE="+m.path("state"), "LD_LIBRARY_PATH="+build)
}

// status runs a command. It returns stdout, stderr and the exit status.
func (m *machine) status(cmd *exec.Cmd) (stdout, stderr string, status int) {
	m.Helper()
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		m.Fatal(err)
	}
	return out.String(), diag.String(), cmd.ProcessState.ExitCode()
}

// run runs a client, which must succeed, and returns its stdout.
func (m *machine) run(client string, args ...string) string {
	m.Helper()
	stdout, stderr, status := m.status(m.command(client, args...))
	if status != 0 {
		m.Fatalf("%s %s: exit status %d\n%s%s", client, strings.Join(args, " "), status, stdout, stderr)
	}
	return stdout
}

// ctl runs nvml-emulator, which must succeed, and returns its stdout.
func (m *machine) ctl(args ...string) string {
	m.Helper()
	cmd := exec.Command(filepath.Join(build, "nvml-emulator"), args...)
	cmd.Env = m.environment()
	stdout, stderr, status := m.status(cmd)
	if status != 0 {
		m.Fatalf("nvml-emulator %s: exit status %d\n%s%s", strings.Join(args, " "), status, stdout, stderr)
	}
	return stdout
}
