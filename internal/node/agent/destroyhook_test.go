package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/config"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm/slurmtest"
)

// monitored is a node on which a monitoring program of root holds the capability of an idle 1g.5gb instance. Without
// the hook, no job can get a 7g.40gb slice. The emulated driver refuses to destroy the instance until `nvml-emulator
// unhold`.
type monitored struct {
	*held
	calls string // the file to which the hook writes its calls
	gi    int
	uuid  string
}

// newMonitored creates the node. The hook appends its arguments to the file calls, and then runs the commands of body,
// which may call end_monitor.
func newMonitored(t *testing.T, body string) *monitored {
	dir := t.TempDir()
	hook := filepath.Join(dir, "hook")
	m := &monitored{calls: filepath.Join(dir, "calls")}
	m.held = heldIn(t, newWorld(t, 1, func(c *config.Config) { c.DestroyHook = hook }))
	id := m.startNow("1g.5gb:1")
	s := m.lease(id).Slices[0]
	m.gi, m.uuid = m.agent.node.Held(id, s).GI, s.UUID
	m.fake.Finish(id)
	m.fake.RunEpilogs()
	m.fake.Prolog(nil)
	emulator := fmt.Sprintf("env NVML_EMULATOR_STATE=%s %s/nvml-emulator", m.node.State, m.node.Build())
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\nend_monitor() { rm -r %s/%d && %s unhold 0 %d; }\n%s\n",
		m.calls, m.proc, madeUp, emulator, m.gi, body)
	if err := os.WriteFile(hook, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	m.process(madeUp, 0, [2]string{m.capability()})
	m.node.Emulator(t, "hold", "0", fmt.Sprint(m.gi))
	return m
}

const pauseAndResume = `case $1 in pause) end_monitor ;; esac`

// called returns the calls of the hook, without the UUID.
func (m *monitored) called() []string {
	text, _ := os.ReadFile(m.calls)
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), " "+m.uuid, "")), "\n")
}

// hooks runs the agent's task for the hook, as Run does. The returned function stops the task.
func (m *monitored) hooks() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	a := m.agent
	go func() {
		a.runHooks(ctx)
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

// whole requests the lease of a 7g.40gb job until the agent grants or refuses it.
func (m *monitored) whole() *api.Lease { return m.leaseOf("7g.40gb:1") }

// leaseOf requests the lease of a job with the given slice until the agent grants or refuses it.
func (m *monitored) leaseOf(slice string) *api.Lease {
	m.t.Helper()
	id, req := m.startedOnly(slice)
	for range 5000 {
		l, err := m.agent.Lease(context.Background(), id, req)
		if err == nil {
			return l
		}
		if api.CodeOf(err) != 503 {
			m.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.t.Fatal("the prolog got no answer")
	return nil
}

func (m *monitored) paused() string {
	text, err := m.agent.ledger.Meta(pausedMeta)
	if err != nil {
		m.t.Fatal(err)
	}
	return text
}

// TestDestroyHook checks a job whose slice overlaps an instance that a monitoring program holds. The hook pauses the
// program, the prolog waits, and the job gets its slice instead of a requeue.
func TestDestroyHook(t *testing.T) {
	m := newMonitored(t, pauseAndResume)
	stop := m.hooks()
	if l := m.whole(); len(l.Slices) != 1 || l.Slices[0].Profile != "7g.40gb" {
		t.Errorf("%+v", l)
	}
	stop()
	want := []string{fmt.Sprintf("pause 0 %d", m.gi), fmt.Sprintf("resume 0 %d", m.gi)}
	if got := m.called(); strings.Join(got, ";") != strings.Join(want, ";") {
		t.Errorf("calls %q, want %q", got, want)
	}
	if m.stuck() != 0 || m.paused() != "" {
		t.Errorf("%d stuck, record %q", m.stuck(), m.paused())
	}
	if !strings.Contains(m.logged(), "held open by pid 9999999, uid 0") {
		t.Errorf("the log does not name the monitoring program: %s", m.logged())
	}
}

// TestDestroyHookDuringPublication checks a hook that ends after the agent has made the plan without room for the job,
// and before the prolog gets its answer. The prolog must repeat its call, and must not requeue the job.
func TestDestroyHookDuringPublication(t *testing.T) {
	m := newMonitored(t, pauseAndResume)
	m.fake.After(func(c slurmtest.Call) {
		if task := m.agent.hookWanted(); task != nil && c.Op == "UpdateNode" {
			m.agent.doPaused(context.Background(), *task, true)
		}
	})
	if l := m.whole(); len(l.Slices) != 1 {
		t.Errorf("%+v", l)
	}
}

// TestDestroyWithoutHook checks that the log and `caelum status` name the processes that prevent a destroy, and that
// their names cannot control a terminal.
func TestDestroyWithoutHook(t *testing.T) {
	m := newMonitored(t, pauseAndResume)
	m.agent.cfg.DestroyHook = ""
	name := filepath.Join(m.proc, fmt.Sprint(madeUp), "status")
	evil := "Name:\tnv-\x1b[2J\u202ehost\nUid:\t0\t0\t0\t0\nThreads:\t1\n"
	if err := os.WriteFile(name, []byte(evil), 0o644); err != nil {
		t.Fatal(err)
	}
	if l := m.whole(); !strings.Contains(l.Error, "requeued") {
		t.Errorf("%+v", l)
	}
	const want = `held open by pid 9999999, uid 0, "nv-\x1b[2J\u202ehost"`
	if m.note() != "stuck: "+want {
		t.Errorf("status: %s", m.note())
	}
	if line := strings.ReplaceAll(m.logged(), `\\`, `\`); !strings.Contains(line, `"nv-\x1b[2J\u202ehost\"`) {
		t.Errorf("log: %s", m.logged())
	}
	if len(m.called()) != 1 || m.called()[0] != "" {
		t.Errorf("calls %q", m.called())
	}
}

// capability returns the capability file of the instance that the monitoring program holds.
func (m *monitored) capability() string { return m.file(api.Slice{GPU: 0, UUID: m.uuid}) }

// TestDestroyHookFails checks hooks that fail. The agent must call resume after every pause, must not wait longer
// than its limit, and must not call the hook for the same instance again soon. With -short, it checks only a hook that
// ends with an error.
func TestDestroyHookFails(t *testing.T) {
	for name, c := range map[string]struct{ body, logged string }{
		"exit status":     {`[ $1 = resume ] || { echo "no $(printf '\033')[2J dcgm" >&2; exit 3; }`, `exit status 3`},
		"still in use":    {`true`, `held open by pid 9999999, uid 0`},
		"never ends":      {`[ $1 = resume ] || { trap '' TERM; sleep 3600 & sleep 3600; }`, `killed after`},
		"background task": {`[ $1 = resume ] || sleep 2 &`, `held open by`},
	} {
		t.Run(name, func(t *testing.T) {
			onlyShort(t, name, "exit status")
			m := newMonitored(t, c.body)
			if name == "never ends" {
				m.agent.hookLimit = 3 * time.Second // enough for the call of resume on a busy machine
			}
			stop := m.hooks()
			if l := m.whole(); !strings.Contains(l.Error, "requeued") {
				t.Errorf("%+v", l)
			}
			stop()
			if err := m.agent.compareGPUs(); err != nil {
				t.Fatal(err)
			}
			if got := m.called(); len(got) != 2 || !strings.HasPrefix(got[1], "resume") {
				t.Errorf("calls %q", got)
			}
			if !strings.Contains(m.logged(), c.logged) || strings.Contains(m.logged(), "\x1b") {
				t.Errorf("%q", m.logged())
			}
			if m.stuck() != 1 || m.agent.hooking() || m.paused() != "" {
				t.Errorf("%d stuck, hooking %v, record %q", m.stuck(), m.agent.hooking(), m.paused())
			}
			m.fake.Advance(hookBackoff)
			if err := m.agent.compareGPUs(); err != nil || !m.agent.hooking() {
				t.Errorf("after the pause: hooking %v, %v", m.agent.hooking(), err)
			}
		})
	}
}

// onlyShort skips a case of a slow test with -short, unless it is the given case.
func onlyShort(t *testing.T, name, only string) {
	t.Helper()
	if testing.Short() && name != only {
		t.Skip("waits for processes; runs without -short")
	}
}

// TestDestroyHookEndsGroup checks that no process of a hook that exceeded its limit remains.
func TestDestroyHookEndsGroup(t *testing.T) {
	m := newMonitored(t, `sleep 3600 & echo $! >$0.pid; wait`)
	m.agent.hookLimit = 3 * time.Second
	if err := m.agent.callHook(context.Background(), "pause", hookTarget{0, m.gi, m.uuid}); err == nil {
		t.Fatal("the hook ended")
	}
	text, err := os.ReadFile(m.cfg.DestroyHook + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(string(text)) + "/stat"
	for range 200 {
		data, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(data), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("a process of the hook still runs: %s", stat)
}

// TestDestroyHookOfUserProcess checks that the agent does not call the hook for an instance that a user's process
// holds.
func TestDestroyHookOfUserProcess(t *testing.T) {
	m := newMonitored(t, pauseAndResume)
	m.process(madeUp, 20002, [2]string{m.capability()})
	c := m.agent.node.Cards[0]
	c.Hardware.Lock()
	var err error
	for _, in := range c.Ours {
		err = m.agent.destroy(0, in, new(spent))
	}
	c.Hardware.Unlock()
	if err == nil || m.agent.hooking() {
		t.Errorf("%v, hooking %v", err, m.agent.hooking())
	}
	if m.note() != `stuck: held open by pid 9999999, uid 20002, "evil"` {
		t.Error(m.note())
	}
}

// TestDestroyHookUntrusted checks that the agent does not run a hook that another user can change.
func TestDestroyHookUntrusted(t *testing.T) {
	m := newMonitored(t, pauseAndResume)
	hook := m.cfg.DestroyHook
	for _, c := range []struct {
		reason string
		spoil  func() error
	}{
		{"writable by others", func() error { return os.Chmod(hook, 0o702) }},
		{"not an executable file", func() error { return os.Chmod(hook, 0o600) }},
		{"belongs to", func() error { return errors.Join(os.Chmod(hook, 0o700), os.Chown(hook, 20002, 20002)) }},
		{"no such file", func() error { return os.Remove(hook) }},
	} {
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		if err := m.agent.pause(t.Context(), hookTarget{}); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", c.reason, err)
		}
		if m.paused() != "" || m.called()[0] != "" {
			t.Errorf("%s: record %q, calls %q", c.reason, m.paused(), m.called())
		}
	}
}

// TestResumeAfterRestart checks that an agent resumes the program that an earlier agent has paused, even if the call
// fails at first.
func TestResumeAfterRestart(t *testing.T) {
	m := newMonitored(t, `[ $1 = pause ] || [ -e $0.works ]`)
	if err := m.agent.pause(context.Background(), hookTarget{0, m.gi, m.uuid}); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m.start()
	if m.agent.resume() || m.paused() == "" {
		t.Error("the agent forgot a program that it could not resume")
	}
	if err := os.WriteFile(m.cfg.DestroyHook+".works", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := m.hooks()
	stop()
	want := fmt.Sprintf("pause 0 %d;resume 0 %[1]d;resume 0 %[1]d", m.gi)
	if got := strings.Join(m.called(), ";"); got != want || m.paused() != "" {
		t.Errorf("calls %q, record %q", got, m.paused())
	}
	m.agent.cfg.DestroyHook = ""
	m.agent.ledger.SetMeta(pausedMeta, `{"gpu":0}`)
	if !m.agent.resume() || m.paused() != "" {
		t.Error("without the key, the record remains")
	}
}

// TestKillHook kills the agent before and after each call of the hook. The next agent must resume the monitoring
// program, and the job must get its slice. With -short, it kills the agent only after the call of pause.
func TestKillHook(t *testing.T) {
	for point, want := range map[string]string{
		failpoint.PauseRecorded: "resume pause resume",
		failpoint.Paused:        "pause resume",
		failpoint.Resumed:       "pause resume resume",
	} {
		t.Run(point, func(t *testing.T) {
			onlyShort(t, point, failpoint.Paused)
			calls := filepath.Join(t.TempDir(), "calls") // removed after the agent, whose hook writes here, has ended
			k := newCampaign(t)
			k.cfg.DestroyHook = filepath.Join(filepath.Dir(calls), "hook")
			script := fmt.Sprintf("#!/bin/sh\necho $1 >>%s\n[ $1 = resume ] || NVML_EMULATOR_STATE=%s "+
				"%s/nvml-emulator unhold $2 $3\n", calls, k.node.State, k.node.Build())
			if err := os.WriteFile(k.cfg.DestroyHook, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			k.start("")
			k.holdIdle()
			k.kill()
			k.start(point)
			k.fake.Submit(job(1, "7g.40gb:1"))
			k.fake.Submit(job(1, "7g.40gb:1"))
			for died := false; !died; {
				k.fake.Tick()
				select {
				case <-k.died:
					died = true
				case <-time.After(2 * time.Millisecond):
				}
			}
			k.agent = nil
			k.start("")
			k.prologs.Wait()
			got := ""
			for range 1000 {
				text, _ := os.ReadFile(calls)
				if got = strings.Join(strings.Fields(string(text)), " "); got == want {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if got != want {
				t.Errorf("calls %q, want %q", got, want)
			}
			k.check(point)
			k.settle()
		})
	}
}

// holdIdle runs a job, and makes a monitoring program hold its slice, which becomes idle.
func (k *campaign) holdIdle() {
	k.t.Helper()
	id, err := k.fake.Submit(job(1, "1g.5gb:1"))
	if err != nil {
		k.t.Fatal(err)
	}
	for len(k.running()) == 0 {
		k.fake.Tick()
		time.Sleep(2 * time.Millisecond)
	}
	k.prologs.Wait()
	s := k.leases[id].Slices[0]
	k.fake.End(id)
	k.fake.RunEpilogs()
	if _, err := k.node.GPUs(); err != nil {
		k.t.Fatal(err)
	}
	list, err := k.node.Instances(s.GPU)
	if err != nil || len(list) != 1 {
		k.t.Fatalf("instances %v, %v", list, err)
	}
	k.node.Emulator(k.t, "hold", fmt.Sprint(s.GPU), fmt.Sprint(list[0].GI))
}

// TestRefusalWithoutHolder checks the message for an instance that is in use although no process has it open. Without
// a hook, the agent searches for processes again a minute later.
func TestRefusalWithoutHolder(t *testing.T) {
	m := newMonitored(t, pauseAndResume)
	if err := os.RemoveAll(filepath.Join(m.proc, fmt.Sprint(madeUp))); err != nil {
		t.Fatal(err)
	}
	m.agent.cfg.DestroyHook = ""
	m.whole()
	if m.note() != "stuck: in use, but no process holds it open" {
		t.Error(m.note())
	}
	m.process(madeUp, 0, [2]string{filepath.Join(m.node.Dev, "nvidia0")})
	const unknown = `stuck: in use, but no process holds it open`
	for _, want := range []string{unknown, unknown + `; root's processes on the GPU: pid 9999999, uid 0, "evil"`} {
		if err := m.agent.compareGPUs(); err != nil {
			t.Fatal(err)
		}
		if m.note() != want {
			t.Errorf("note %q, want %q", m.note(), want)
		}
		m.fake.Advance(searchPause)
	}
}

// TestHookArguments checks the arguments for a full GPU.
func TestHookArguments(t *testing.T) {
	if got := strings.Join(hookTarget{3, gpu.FullGI, "GPU-1"}.args(), " "); got != "3 full GPU-1" {
		t.Error(got)
	}
}
