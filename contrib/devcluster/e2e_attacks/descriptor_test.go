//go:build e2e

package e2eattacks

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/node/api"
)

// asHolder is an environment variable that makes the test binary act as the attacker's program: it opens as many
// capability files as possible, and keeps the descriptors open as the value specifies. It writes the number of
// descriptors to the file "held" and then keeps running.
const asHolder = "ATTACK_HOLD"

// These constants select how the attacker's program keeps descriptors open: in its own table, or in flight in a socket
// that it has open. It can also send them to a process outside the job, or two processes can constantly send them to
// each other.
const (
	inTable  = "table"
	inFlight = "flight"
	inSender = "sender"
	outside  = "outside"
	swapped  = "swapped"
)

func holdDescriptors() int {
	var held []int
	way := os.Getenv(asHolder)
	if way == outside || way == swapped {
		held = received("socket")
	} else {
		files, _ := filepath.Glob("/dev/nvidia-caps/nvidia-cap*")
		for _, file := range files {
			if fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
				held = append(held, fd)
			}
		}
	}
	switch way {
	case inFlight:
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil || send(pair[0], held) != nil {
			return 1
		}
	case inSender:
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil || unix.Connect(fd, &unix.SockaddrUnix{Name: "socket"}) != nil || send(fd, held) != nil {
			return 1
		}
		return 0
	}
	text := fmt.Sprintf("%d %d\n", len(held), os.Getpid())
	if err := os.WriteFile("held.tmp", []byte(text), 0o644); err != nil {
		return 1
	}
	if err := os.Rename("held.tmp", "held"); err != nil {
		return 1
	}
	if way == swapped {
		swap(held)
	}
	time.Sleep(time.Hour)
	return 0
}

// send sends descriptors through a socket, and closes its own copies.
func send(socket int, fds []int) error {
	err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fds...), nil, 0)
	for _, fd := range fds {
		unix.Close(fd)
	}
	return err
}

// receive returns the descriptors of one message.
func receive(socket int) (fds []int) {
	data := make([]byte, unix.CmsgSpace(4*64))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), data, 0)
	if err != nil {
		return nil
	}
	messages, _ := unix.ParseSocketControlMessage(data[:n])
	for _, m := range messages {
		some, _ := unix.ParseUnixRights(&m)
		fds = append(fds, some...)
	}
	return fds
}

// received listens on a socket at path, waits for a process to send descriptors, and returns them.
func received(path string) []int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil || unix.Bind(fd, &unix.SockaddrUnix{Name: path}) != nil || unix.Listen(fd, 1) != nil {
		return nil
	}
	from, _, err := unix.Accept(fd)
	if err != nil {
		return nil
	}
	return receive(from)
}

// swapSocket is an environment variable. Its value is the descriptor number of the socket through which the second
// process of a swap receives the descriptors of the capability files.
const swapSocket = "ATTACK_SWAP"

// swap starts a second process and exchanges the descriptors with it until one of the two is killed.
func swap(held []int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return
	}
	second := exec.Command("/proc/self/exe")
	second.Env = append(os.Environ(), swapSocket+"=3")
	second.ExtraFiles = []*os.File{os.NewFile(uintptr(pair[1]), "socket")}
	if second.Start() != nil || send(pair[0], held) != nil {
		return
	}
	pass(pair[0])
}

// pass sends every received descriptor back through the socket.
func pass(socket int) {
	for fds := receive(socket); len(fds) > 0; fds = receive(socket) {
		time.Sleep(300 * time.Microsecond)
		if send(socket, fds) != nil {
			return
		}
	}
}

// openable starts a cluster in which processes can open the capability files. Because the emulator's own device numbers
// have no driver, the capability files get those of the kernel's virtual terminals, whose minor numbers (up to 63)
// include those of the test's instances (30, 31 and so on).
func openable(t *testing.T, o cluster.Options) *clustertest.Site {
	t.Helper()
	o.Nodes, o.GPUs, o.KeepDeviceFiles = 1, 1, true
	s := clustertest.Start(t, o)
	s.Must(
		"n1",
		"root",
		"sh",
		"-c",
		`printf 'Character devices:\n  4 nvidia-caps\n\nBlock devices:\n' >/run/nvml-emulator/proc/devices`,
	)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	s.Write("holder", string(program))
	return s
}

// holder waits for the attacker's program, which must have at least one descriptor open, and returns its pid.
func holder(t *testing.T, s *clustertest.Site) (pid string) {
	t.Helper()
	var n int
	s.Within("the attacker holds descriptors", func() bool {
		data, err := os.ReadFile(filepath.Join(s.Home(), "held"))
		if err == nil {
			fmt.Sscan(string(data), &n, &pid)
		}
		return err == nil
	})
	if n < 2 {
		t.Fatalf("the attacker opened %d capability files, so the test proves nothing", n)
	}
	return pid
}

// instance returns the instance that is a job's slice.
func instance(t *testing.T, s *clustertest.Site, job string) (found api.Instance) {
	t.Helper()
	slice := s.Slice("n1", job)
	status, err := s.Status("n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range status.GPUs[0].Instances {
		if in.UUID == slice.UUID {
			return in
		}
	}
	t.Fatalf("no instance %s in %+v", slice.UUID, status.GPUs)
	return found
}

// victimJob submits, as the victim, a job that occupies a slice for some time.
func victimJob(s *clustertest.Site) (id string) {
	out := s.Must("", victim, "sbatch", "--parsable", "--gres=mig:2g.10gb:1", "--wrap", "sleep 600")
	return strings.TrimSpace(out)
}

// note returns the state and the note of an instance in the agent's status. gi is the GPU instance id.
func note(s *clustertest.Site, gi int) (state, text string) {
	out := s.Try("n1", "caelum", "status", "--json")
	var status struct {
		GPUs []struct {
			Instances []struct {
				GI          int
				State, Note string
			}
		}
	}
	if json.Unmarshal([]byte(out), &status) != nil {
		return "", out
	}
	for _, in := range status.GPUs[0].Instances {
		if in.GI == gi {
			return in.State, in.Note
		}
	}
	return "", ""
}

// TestDescriptorOutlivesLease checks a job that opens its slice's capability files and leaves behind a process that
// keeps the descriptors open. While this process is running, other users' jobs must get instances with other device
// numbers.
func TestDescriptorOutlivesLease(t *testing.T) {
	s := openable(t, cluster.Options{})
	s.Write(
		"attack",
		"#!/bin/bash\n"+asHolder+"="+inTable+" setsid --fork ./holder >/dev/null 2>&1\n"+
			"until [[ -e held && -e go ]]; do sleep 0.1; done\n",
	)
	job := s.Submit("./attack", "--gres=mig:2g.10gb:1")
	pid := holder(t, s)
	mine := instance(t, s, job)
	s.Write("go", "")
	s.Completed(job)

	first := victimJob(s)
	s.Running(first)
	if got := instance(t, s, first); got.GI == mine.GI {
		t.Errorf(
			"the victim's job %s got GPU instance %d, but process %s of the attacker still has the files open",
			first,
			got.GI,
			pid,
		)
	}
	state, text := note(s, mine.GI)
	if want := "pid " + pid + ", uid 20001, \"holder\""; state != api.StateStuck || !strings.Contains(text, want) {
		t.Errorf("the agent shows the instance as %q (%q), not as set aside because of %s", state, text, want)
	}
	if log, err := s.Log("agent-n1"); err != nil || !strings.Contains(log, "was set aside: held open by pid "+pid) {
		t.Errorf("the agent's log does not contain process %s (%v)", pid, err)
	}
	s.Must("n1", "root", "kill", "-KILL", pid)
	s.Within("the instance is idle again", func() bool {
		state, _ := note(s, mine.GI)
		return state != api.StateStuck
	})
	s.NoneDrained()
}

// TestHolderOutsideJob checks a job that sends its slice's descriptors to processes outside the job, which keep them
// open after the job has ended. With ConstrainDevices=yes, the agent must end every process that has a descriptor of
// the slice open, so that all slices are available to other users.
func TestHolderOutsideJob(t *testing.T) {
	for _, way := range []string{outside, swapped} {
		t.Run(way, func(t *testing.T) {
			s := openable(t, cluster.Options{Cgroup: "v2"})
			ended := make(chan error, 1)
			process := s.Command(t.Context(), "n1", attacker, "env", asHolder+"="+way, "./holder")
			go func() { ended <- process.Run() }()
			s.Write(
				"attack",
				"#!/bin/bash\nexport "+asHolder+"="+inSender+"\nuntil ./holder; do sleep 0.1; done\n"+
					"until [[ -e go ]]; do sleep 0.1; done\n",
			)
			job := s.Submit("./attack", "--gres=mig:7g.40gb:1")
			pid := holder(t, s)
			s.Write("go", "")
			s.Completed(job)
			for range 4 {
				s.Must("", victim, "timeout", "60", "srun", "--gres=mig:7g.40gb:1", "true")
			}
			if way == outside {
				if log, err := s.Log("agent-n1"); err != nil ||
					!strings.Contains(log, "killed a process that was not allowed to use the slice: pid "+pid) {
					t.Errorf("the agent's log does not name process %s (%v)", pid, err)
				}
				select {
				case <-ended:
				case <-time.After(clustertest.Limit):
					t.Error("the agent did not end the process")
				}
			}
			s.NoneDrained()
		})
	}
}

// TestDescriptorsInFlight checks that a process with descriptors in flight cannot block a slice for other users. The
// agent cannot see the files of descriptors in flight, which every process can have.
func TestDescriptorsInFlight(t *testing.T) {
	s := openable(t, cluster.Options{})
	s.Write(
		"attack",
		"#!/bin/bash\n"+asHolder+"="+inFlight+" setsid --fork ./holder >/dev/null 2>&1\n"+
			"until [[ -e held && -e go ]]; do sleep 0.1; done\n",
	)
	job := s.Submit("./attack", "--gres=mig:7g.40gb:1")
	pid := holder(t, s)
	s.Write("go", "")
	s.Completed(job)
	s.Must("", victim, "timeout", "60", "srun", "--gres=mig:7g.40gb:1", "true")
	s.Must("n1", "root", "kill", "-KILL", pid)
	s.NoneDrained()
}

// TestDescriptorOfNewInstance checks a new instance's capability files with NVreg_ModifyDeviceFiles=1, where the driver
// creates them with access for all users. A user opens the files before the agent restricts access to them. Another
// user's next job must not get the instance, and the first user must not be able to use it.
func TestDescriptorOfNewInstance(t *testing.T) {
	s := openable(t, cluster.Options{})
	first := victimJob(s)
	s.Running(first)
	before := instance(t, s, first)
	s.Must("", victim, "scancel", first)
	s.Within("the slice is idle", func() bool { state, _ := note(s, before.GI); return state == api.StateIdle })
	// For a 7g.40gb job, the agent destroys the idle instance. A later job makes the agent create a new instance.
	whole := s.Submit("true", "--gres=mig:7g.40gb:1")
	s.Completed(whole)
	s.Must(
		"n1",
		"root",
		"sh",
		"-c",
		"for m in 0 1; do chmod 444 /dev/nvidia-caps/nvidia-cap$((3 + 9 * "+fmt.Sprint(before.GI)+" + m)); done",
	)

	ended := make(chan error, 1)
	attack := s.Command(t.Context(), "n1", attacker, "env", asHolder+"="+inTable, "./holder")
	go func() { ended <- attack.Run() }()
	pid := holder(t, s)
	next := victimJob(s)
	s.Running(next)
	if got := instance(t, s, next); got.GI == before.GI {
		t.Errorf(
			"the victim's job got GPU instance %d, but process %s of the attacker has its capability files open",
			got.GI,
			pid,
		)
	}
	s.Must("n1", "root", "kill", "-KILL", pid)
	<-ended
	s.NoneDrained()
}

// TestStrangerOnSlice checks that the agent ends another user's process on a job's slice or, with foreign_processes:
// report, only reports it.
func TestStrangerOnSlice(t *testing.T) {
	for cgroup, why := range map[string]string{"": "of a user other than the job's", "v1": "of no job",
		"v2": "of no job"} {
		t.Run("cgroup"+cgroup, func(t *testing.T) { strangerOnSlice(t, cgroup, why) })
	}
}

// configure edits the configuration of n1's agent with a sed script, and restarts the agent.
func configure(t *testing.T, s *clustertest.Site, edit string) {
	t.Helper()
	if err := s.StopUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	s.Must("n1", "root", "sed", "-i", edit, "/etc/caelum/caelum.yaml")
	if err := s.StartUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
}

func strangerOnSlice(t *testing.T, cgroup, why string) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, KeepDeviceFiles: true, Cgroup: cgroup})
	configure(t, s, "$ a foreign_processes: report")
	job := s.Submit("./hold keep", "--gres=mig:2g.10gb:1")
	s.Running(job)
	mine := instance(t, s, job)
	processes := func() int {
		slice := api.Lease{}
		json.Unmarshal([]byte(s.Try("n1", "caelum", "job", job, "--json")), &slice)
		if len(slice.Slices) != 1 || slice.Slices[0].Use == nil {
			return 0
		}
		return slice.Slices[0].Use.Processes
	}
	// The job's process fails if another process is already using the slice.
	s.Within("the agent shows the job's process", func() bool { return processes() == 1 })
	// The command gives all users access to the capability files while the stranger's process starts, so that the
	// stranger gets descriptors as if from another source.
	s.Must("n1", "root", "sh", "-c", "chmod 444 $(find /dev/nvidia-caps -user "+attacker+")")
	ended := make(chan error, 1)
	stranger := s.Command(t.Context(), "n1", victim, "env", "CUDA_VISIBLE_DEVICES="+mine.UUID,
		"cuda-process", "--seconds", "3600")
	go func() { ended <- stranger.Run() }()
	// The slice has one of the job's processes and one of the stranger's.
	s.Within("the agent shows two processes", func() bool { return processes() == 2 })
	s.Must("n1", "root", "sh", "-c", "chmod 400 $(find /dev/nvidia-caps -user "+attacker+")")
	time.Sleep(2 * time.Second) // within two seconds, the agent takes two more samples
	want := `uid 20002, "cuda-process", ` + why
	if state, text := note(s, mine.GI); state != api.StateLeased || !strings.Contains(text, want) ||
		strings.Count(text, "pid ") != 1 {
		t.Fatalf("the status shows %q, %q for a process of user 20002 on a slice of user 20001's job, not %q",
			state, text, want)
	}
	log, err := s.Log("agent-n1")
	if n := strings.Count(log, "a process outside the job is using its slice: "); err != nil || n != 1 {
		t.Errorf("the log contains %d lines about the stranger, want 1 (%v)", n, err)
	}
	if len(ended) > 0 {
		t.Error("the agent ended the stranger's process")
	}

	configure(t, s, "/^foreign_processes/ d")
	select {
	case <-ended:
	case <-time.After(clustertest.Limit):
		t.Fatal("the agent did not end the stranger's process")
	}
	if s.State(job) != "RUNNING" {
		t.Errorf("the state of the job is %s, not RUNNING", s.State(job))
	}
	s.End("keep")
	s.Completed(job)
	s.NothingLeft()
}
