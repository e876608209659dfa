package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"caelum/internal/api"
	"caelum/internal/gpu"
)

// held is a world whose processes are those that a test writes.
type held struct {
	*world
	proc string
}

func newHeld(t *testing.T, gpus int) *held {
	h := &held{newWorld(t, gpus), t.TempDir()}
	h.stop()
	h.cfg.procs = &gpu.Processes{Proc: h.proc}
	h.start()
	return h
}

// process writes a process of a user, with these targets of its descriptors and the fdinfo of each.
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
		if strings.HasPrefix(fd[0], "socket:") {
			unix.Mknod(filepath.Join(dir, "fd", fd[0]), unix.S_IFSOCK|0o600, 0)
		}
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

// file is the capability file of a slice's compute instance.
func (h *held) file(s api.Slice) string {
	h.t.Helper()
	for _, in := range h.agent.cards[s.GPU].ours {
		if in.UUID == s.UUID {
			return h.agent.caps.Files(h.agent.cards[s.GPU].Minor, h.agent.hwOf(in))[1]
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

// A descriptor that outlives its job keeps the slice from the next jobs, over a restart of the agent too, until it is closed.
func TestDescriptorOutlivesItsJob(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	first := h.lease(id).Slices[0]
	end := h.process(4711, 20001, [2]string{h.file(first)})
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	const want = `stuck: held open by pid 4711, uid 20001, "evil"`
	if h.note() != want || h.offers()["7g.40gb"] != 0 {
		t.Errorf("%q, offers %v", h.note(), h.offers())
	}
	if !strings.Contains(h.logged(), `2g.10gb at 4 was set aside: held open by pid 4711, uid 20001`) {
		t.Error(h.logged())
	}
	next := h.startNow("2g.10gb:1")
	if l := h.lease(next); len(l.Slices) != 1 || l.Slices[0].Start == first.Start {
		t.Errorf("%+v", l)
	}
	h.stop()
	h.start()
	if err := h.agent.look(); err != nil {
		t.Fatal(err)
	}
	if h.note() != want || !h.agent.lingers() {
		t.Errorf("after a restart: %q", h.note())
	}
	end()
	if err := h.agent.look(); err != nil {
		t.Fatal(err)
	}
	if h.note() != "" || h.stuck() != 0 {
		t.Errorf("when it is closed: %q, %d stuck", h.note(), h.stuck())
	}
}

// A descriptor in a socket shows no device: it counts while its process is of the slice's last user, also over a restart.
func TestDescriptorInSocket(t *testing.T) {
	for uid, stuck := range map[int]int{20001: 1, 20002: 0} {
		h := newHeld(t, 1)
		id := h.startNow("2g.10gb:1")
		h.lease(id)
		end := h.process(4711, uid, [2]string{"socket:[1]", "scm_fds: 1\n"})
		h.fake.Finish(id)
		h.fake.RunEpilogs()
		if h.stuck() != stuck {
			t.Errorf("user %d: %d stuck, %q", uid, h.stuck(), h.note())
		}
		h.stop()
		h.start()
		if err := h.agent.look(); err != nil || h.stuck() != stuck {
			t.Errorf("user %d after a restart: %d stuck, %v", uid, h.stuck(), err)
		}
		end()
		if err := h.agent.look(); err != nil || h.stuck() != 0 {
			t.Errorf("user %d: %d stuck when it is gone, %v", uid, h.stuck(), err)
		}
	}
}

// A stranger opened the files of a new instance before they were closed: the job gets another slice.
func TestDescriptorOfNewInstance(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	file, at := h.file(h.lease(id).Slices[0]), h.lease(id).Slices[0].Start
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	h.publish()
	whole := h.startNow("7g.40gb:1") // the 2g is destroyed
	h.lease(whole)
	h.process(4711, 20002, [2]string{file})
	h.fake.Finish(whole)
	h.fake.RunEpilogs()
	for range 2 {
		id := h.startNow("2g.10gb:1")
		if l := h.lease(id); len(l.Slices) != 1 || l.Slices[0].Start == at {
			t.Errorf("%+v", l)
		}
	}
	if !strings.Contains(h.note(), "held open by pid 4711, uid 20002") {
		t.Errorf("%q", h.note())
	}
}

// Processes that cannot be listed are not taken for none.
func TestDescriptorsUnreadable(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	h.lease(id)
	os.Rename(h.proc, h.proc+".away")
	h.fake.Finish(id)
	h.fake.RunEpilogs()
	if h.stuck() != 1 || h.note() != "stuck: not known which processes hold it open" {
		t.Errorf("%d stuck, %q", h.stuck(), h.note())
	}
	os.Rename(h.proc+".away", h.proc)
	if err := h.agent.look(); err != nil || h.stuck() != 0 {
		t.Errorf("%d stuck when they can be listed, %v", h.stuck(), err)
	}
}

// Prologs share a scan only if it begins after each of them has asked.
func TestSharedSearch(t *testing.T) {
	a := newHeld(t, 1).agent
	a.searches.running.Lock() // a scan runs
	first, second := a.search(), a.search()
	if first != second {
		t.Error("two prologs that wait for the same scan have one each")
	}
	a.searches.running.Unlock()
	if _, err := first.wait(); err != nil {
		t.Fatal(err)
	}
	if third := a.search(); third == first {
		t.Error("a prolog is answered by a scan that began before it asked")
	}
}
