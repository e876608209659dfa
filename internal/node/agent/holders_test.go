package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// held is a world with an emulated /proc, which shows only the processes that a test writes.
type held struct {
	*world
	proc string
}

func newHeld(t *testing.T, gpus int) *held { return heldIn(t, newWorld(t, gpus)) }

func heldIn(t *testing.T, w *world) *held {
	h := &held{w, t.TempDir()}
	h.stop()
	h.procs = &gpu.Processes{Proc: h.proc}
	h.start()
	return h
}

// madeUp is the PID of a process that exists only in the emulated /proc. The largest PID of Linux is 4194304.
const madeUp = 9999999

// process adds a user's process to the emulated /proc. fds lists the target and the fdinfo of each of its open files.
// The returned end function removes the process.
func (h *held) process(pid, uid int, fds ...[2]string) (end func()) {
	h.t.Helper()
	dir := filepath.Join(h.proc, fmt.Sprint(pid))
	files := map[string]string{
		"status": fmt.Sprintf("Name:\tevil\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\nThreads:\t1\n", uid),
		"stat":   fmt.Sprintf("%d (evil) S", pid) + strings.Repeat(" 7", 30),
		"cgroup": "0::/user.slice/user-1.slice\n",
	}
	for _, sub := range []string{"fd", "fdinfo"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	os.Symlink("/bin/true", filepath.Join(dir, "exe"))
	for k, fd := range fds {
		os.Symlink(fd[0], filepath.Join(dir, "fd", fmt.Sprint(k)))
		files[fmt.Sprint("fdinfo/", k)] = "flags:\t02\nmnt_id:\t7\n" + fd[1]
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
	return func() { os.RemoveAll(dir) }
}

// file returns the capability file of a slice's compute instance.
func (h *held) file(s api.Slice) string {
	h.t.Helper()
	for _, in := range h.agent.node.Cards[s.GPU].Ours {
		if in.UUID == s.UUID {
			return h.agent.caps.Files(h.agent.node.Cards[s.GPU].Minor, h.agent.node.HardwareOf(in))[1]
		}
	}
	h.t.Fatalf("no instance %s", s.UUID)
	return ""
}

func (h *held) note() string {
	status, err := h.agent.Status(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, g := range status.GPUs {
		for _, in := range g.Instances {
			if in.Note != "" {
				return in.State + ": " + in.Note
			}
		}
	}
	return ""
}

func (h *held) logged() string { return h.log.String() }

// TestDescriptorOutlivesItsJob checks that no job gets a slice while a process still has one of its capability files
// open since an earlier job. A restart of the agent must not change this.
func TestDescriptorOutlivesItsJob(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	first := h.lease(id).Slices[0]
	end := h.process(madeUp, 20001, [2]string{h.file(first)})
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	const want = `stuck: held open by pid 9999999, uid 20001, "evil"`
	if h.note() != want || h.offers()["7g.40gb"] != 0 {
		t.Errorf("%q, offers %v", h.note(), h.offers())
	}
	if !strings.Contains(h.logged(), `2g.10gb at 4 was set aside: held open by pid 9999999, uid 20001`) {
		t.Error(h.logged())
	}
	next := h.startNow("2g.10gb:1")
	if l := h.lease(next); len(l.Slices) != 1 || l.Slices[0].Start == first.Start {
		t.Errorf("%+v", l)
	}
	h.stop()
	h.start()
	if err := h.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if h.note() != want || !h.agent.hasLeftovers() {
		t.Errorf("after a restart: %q", h.note())
	}
	end()
	if err := h.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if h.note() != "" || h.stuck() != 0 {
		t.Errorf("after the close: %q, %d stuck", h.note(), h.stuck())
	}
}

// wholeFile returns the capability file of a 7g.40gb instance that is idle and offered.
func (h *held) wholeFile() string {
	id := h.startNow("7g.40gb:1")
	file := h.file(h.lease(id).Slices[0])
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	h.fake.Prolog(nil)
	return file
}

// TestHolderRequeuesJob checks that a user who opens a slice between its offer and its lease can delay another user's
// batch job, but not keep it held for good.
func TestHolderRequeuesJob(t *testing.T) {
	h := newHeld(t, 1)
	file := h.wholeFile()
	id, req := h.startedOnly("7g.40gb:1")
	for n := range maxRequeues + 2 {
		end := h.process(madeUp, 20002, [2]string{file})
		req.Restart = n
		if l, err := h.agent.Lease(context.Background(), id, req); err != nil ||
			!strings.Contains(l.Error, "the job was requeued") {
			t.Fatalf("%d: %+v, %v", n, l, err)
		}
		h.fake.RunEpilogs()
		end()
		if err := h.agent.compareGPUs(); err != nil {
			t.Fatal(err)
		}
		if h.requeued(id); h.fake.Tick() == nil {
			t.Fatalf("%d: the job does not start again", n)
		}
	}
	req.Restart = maxRequeues + 2
	if l, err := h.agent.Lease(context.Background(), id, req); err != nil || len(l.Slices) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestHolderDelaysProlog checks that the prolog of a job that may not be requeued waits until no process has the slice
// open.
func TestHolderDelaysProlog(t *testing.T) {
	h := newHeld(t, 1)
	file := h.wholeFile()
	j := job(1, "7g.40gb:1")
	j.Batch = false
	id := h.submit(j)
	h.publish()
	h.fake.Tick()
	end := h.process(madeUp, 20002, [2]string{file})
	req := api.LeaseRequest{UID: 20001, Slots: []int{0}}
	if _, err := h.agent.Lease(context.Background(), id, req); api.CodeOf(err) != 503 {
		t.Errorf("while the slice is held: %v", err)
	}
	end()
	if err := h.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if l, err := h.agent.Lease(context.Background(), id, req); err != nil || len(l.Slices) != 1 {
		t.Errorf("afterwards: %+v, %v", l, err)
	}
}

// TestHolderLoggedOnce checks that a process that keeps a slice open while changing its name again and again is
// logged only once.
func TestHolderLoggedOnce(t *testing.T) {
	h := newHeld(t, 1)
	file := h.wholeFile()
	h.process(madeUp, 20002, [2]string{file})
	for k := range 5 {
		name := fmt.Sprintf("Name:\tn%d\nUid:\t20002\t20002\t20002\t20002\nThreads:\t1\n", k)
		if err := os.WriteFile(filepath.Join(h.proc, fmt.Sprint(madeUp), "status"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		h.agent.closeIdle(h.agent.node.Cards)
		if err := h.agent.compareGPUs(); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`"n%d"`, k); !strings.Contains(h.note(), want) {
			t.Errorf("status: %q, want %s", h.note(), want)
		}
	}
	if n := strings.Count(h.logged(), "was set aside"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, h.logged())
	}
}

// TestDescriptorOfNewInstance checks that a job gets another slice if a process of another user opens a new
// instance's capability files before the agent restricts them to root.
func TestDescriptorOfNewInstance(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	file, at := h.file(h.lease(id).Slices[0]), h.lease(id).Slices[0].Start
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	h.publish()
	whole := h.startNow("7g.40gb:1") // the 2g is destroyed
	h.lease(whole)
	h.process(madeUp, 20002, [2]string{file})
	h.fake.Finish(whole)
	h.fake.RunEpilogs()
	for range 2 {
		id := h.startNow("2g.10gb:1")
		if l := h.lease(id); len(l.Slices) != 1 || l.Slices[0].Start == at {
			t.Errorf("%+v", l)
		}
	}
	if !strings.Contains(h.note(), "held open by pid 9999999, uid 20002") {
		t.Errorf("%q", h.note())
	}
}

// TestDescriptorsUnreadable checks that the agent sets the slice aside if it cannot list the processes.
func TestDescriptorsUnreadable(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	h.lease(id)
	os.Rename(h.proc, h.proc+".away")
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	if h.stuck() != 1 || h.note() != "stuck: couldn't list the processes that hold the slice open" {
		t.Errorf("%d stuck, %q", h.stuck(), h.note())
	}
	os.Rename(h.proc+".away", h.proc)
	if err := h.agent.compareGPUs(); err != nil || h.stuck() != 0 {
		t.Errorf("%d stuck when the processes can be listed, %v", h.stuck(), err)
	}
}

// TestUnreadDescriptors checks that the agent sets a slice aside if it cannot read all processes of the slice's last
// user, but not because of another user.
func TestUnreadDescriptors(t *testing.T) {
	h := newHeld(t, 1)
	h.agent.procs.Limit = 11 // the cost of a process with one descriptor
	for pid, uid := range map[int]int{41: 20001, 42: 20001, 43: 20007, 44: 20007} {
		h.process(pid, uid, [2]string{"/dev/full", ""})
	}
	id := h.startNow("2g.10gb:1")
	h.lease(id)
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	const why = "stuck: held open by an unknown process of uid 20001: the user's processes have more than 11 open " +
		"descriptors"
	if h.stuck() != 1 || h.note() != why {
		t.Errorf("%d stuck, %q", h.stuck(), h.note())
	}
	os.RemoveAll(filepath.Join(h.proc, "42"))
	if err := h.agent.compareGPUs(); err != nil || h.stuck() != 0 {
		t.Errorf("%d stuck because of another user's processes, %v: %q", h.stuck(), err, h.note())
	}
}
