package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

const (
	closedL40S = "gpu:l40s:%d,mig:1f.11gb:0,mig:2f.22gb:0,mig:full:0,mig:closed:%d"
	allL40S    = "gpu:l40s:8,mig:1f.11gb:8,mig:2f.22gb:4,mig:full:2"
)

// limited is a driver that can limit memory.
type limited struct {
	gpu.Hardware
	*gputest.FakeLimits
}

func (limited) LimitsProblem() string { return "" }

// fractional is a world whose GPUs are L40S, divided into four fractions.
type fractional struct {
	*world
	limits *gputest.FakeLimits
	groups *gputest.FakeGroups
}

func newFractional(t *testing.T, gpus int, options ...func(*config.Config)) fractional {
	f := fractional{limits: new(gputest.FakeLimits), groups: new(gputest.FakeGroups)}
	node := gputest.New(t, "L40S-48GB", gpus)
	before := func(w *world) {
		w.driver = func(hw gpu.Hardware) gpu.Hardware { return limited{hw, f.limits} }
		w.groups = f.groups
		w.fake.SetConfig("ProctrackType", "proctrack/cgroup")
		w.fake.SetConfig("TaskPlugin", "task/cgroup")
		w.fake.SetConfig("ConstrainDevices", "yes")
	}
	divide := func(c *config.Config) { c.Fractions = map[string]int{"l40s": 4} }
	f.world = newWorldBefore(t, node, fmt.Sprintf(closedL40S, 4*gpus, 16*gpus), allL40S, before,
		append(options, divide)...)
	return f
}

// TestFractions runs jobs with fractions of one GPU.
func TestFractions(t *testing.T) {
	f := newFractional(t, 1)
	first := f.startNow("1f.11gb:1")
	l := f.lease(first)
	s := l.Slices[0]
	if s.Profile != "1f.11gb" || s.MemoryMiB != 11389 || s.UUID != f.agent.node.Cards[0].UUID+"/0" {
		t.Errorf("%+v", s)
	}
	limit, _, _ := f.limits.Limit(0, l.Cgroup.Path)
	if limit != 11389<<20 || !strings.HasSuffix(l.Cgroup.Path, fmt.Sprintf("/job_%d", first)) {
		t.Errorf("the limit of %+v is %d", l.Cgroup, limit)
	}
	text, _ := os.ReadFile(f.agent.leaseFile(first))
	if !strings.Contains(string(text), fmt.Sprintf("\ncgroup %d\nslot 0 %s/1\n", l.Cgroup.Inode, s.UUID)) {
		t.Errorf("lease file:\n%s", text)
	}
	f.uid = 20002
	second := f.startNow("2f.22gb:1")
	f.lease(second)
	f.users(0, 20001, 20002)
	if got := f.offers(); got["1f.11gb"] != 1 || got["full"] != 0 {
		t.Errorf("on offer: %v", got)
	}
	f.finish(first)
	f.users(0, 20002)
	if f.groups.Exists(l.Cgroup) {
		t.Error("the cgroup of a job that has ended exists")
	}
	f.finish(second)
	f.users(0)
	full := f.lease(f.startNow("full:1"))
	if full.Slices[0].UUID != f.agent.node.Cards[0].UUID || full.Cgroup.Inode == 0 || f.file(0) != "20002 0600" {
		t.Errorf("%+v, device file %s", full, f.file(0))
	}
	f.finish(full.Job)
	f.users(0)
}

func (f fractional) finish(id uint32) {
	f.t.Helper()
	if err := f.fake.Finish(id); err != nil {
		f.t.Fatal(err)
	}
}

// users checks that exactly these users can open a GPU's device file.
func (f fractional) users(g int, uids ...int) {
	f.t.Helper()
	got, err := listed(f.agent.caps.DeviceFile(g))
	if fmt.Sprint(got) != fmt.Sprint(uids) || err != nil {
		f.t.Errorf("users %v, %v, want %v", got, err, uids)
	}
	if len(uids) == 0 && f.file(g) != "0 0600" {
		f.t.Errorf("device file: %s", f.file(g))
	}
}

// listed returns the users in a file's access control list.
func listed(path string) (uids []int, err error) {
	acl := make([]byte, 1024)
	n, err := unix.Getxattr(path, "system.posix_acl_access", acl)
	for at := 4; at+8 <= n; at += 8 {
		if acl[at] == 2 { // ACL_USER
			uids = append(uids, int(acl[at+4])|int(acl[at+5])<<8|int(acl[at+6])<<16)
		}
	}
	if errors.Is(err, unix.ENODATA) {
		err = nil
	}
	return uids, err
}

// TestFractionsAfterRestart checks that a new agent keeps the limits and the leases, also if it has lost the ledger.
func TestFractionsAfterRestart(t *testing.T) {
	f := newFractional(t, 1)
	id := f.startNow("2f.22gb:1")
	l := f.lease(id)
	for _, lost := range []bool{false, true} {
		f.stop()
		f.limits.SetLimit(0, l.Cgroup.Path, gpu.NoLimit)
		orphan, _ := f.groups.Make("job_99")
		if lost {
			if err := os.Remove(f.cfg.StateDir + "/ledger.db"); err != nil {
				t.Fatal(err)
			}
		}
		f.start()
		if limit, _, _ := f.limits.Limit(0, l.Cgroup.Path); limit != l.Slices[0].MemoryMiB<<20 {
			t.Errorf("lost %v: the limit is %d", lost, limit)
		}
		if f.groups.Exists(orphan) {
			t.Errorf("lost %v: the cgroup of a job without a lease exists", lost)
		}
		f.users(0, 20001)
		status, _ := f.agent.Status(context.Background())
		if in := status.GPUs[0].Instances; len(in) != 1 || in[0].Job != id {
			t.Errorf("lost %v: %+v", lost, in)
		}
	}
	// The agent is killed during the release, after it has removed the limit.
	if err := f.agent.closeSlice(id, l.Slices[0]); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.start()
	f.finish(id)
	f.users(0)
	if f.groups.Exists(l.Cgroup) {
		t.Error("the cgroup of a job that has ended exists")
	}
	if l := f.lease(f.startNow("full:1")); len(l.Slices) != 1 {
		t.Errorf("%+v", l)
	}
}

// TestFractionsChanged checks that an agent does not start while a job holds a fraction that the GPU no longer has.
func TestFractionsChanged(t *testing.T) {
	f := newFractional(t, 1)
	f.lease(f.startNow("1f.11gb:1"))
	f.stop()
	f.cfg.Fractions = nil
	if _, err := f.newAgent(logrus.New()); err == nil || !strings.Contains(err.Error(), "holds 1f.11gb of GPU 0") {
		t.Errorf("the agent started: %v", err)
	}
	f.cfg.Fractions = map[string]int{"l40s": 4}
	f.start()
}

// TestUnusedType checks that the agent logs a type in the fractions key that no GPU of the node has, once.
func TestUnusedType(t *testing.T) {
	f := newFractional(t, 1)
	if n := strings.Count(f.log.String(), "divides no"); n > 0 {
		t.Errorf("warned without need: %s", f.log.String())
	}
	f.stop()
	f.cfg.Fractions["l40"] = 2
	f.start()
	f.publish()
	if text := f.log.String(); strings.Count(text, "divides no l40: no GPU of this node has this type") != 1 {
		t.Errorf("log: %s", text)
	}
}

// TestFractionsOff checks that the cgroup of a job with a full GPU is removed when the job ends, if the node has no
// fractions since an agent was started during the job.
func TestFractionsOff(t *testing.T) {
	f := newFractional(t, 1)
	l := f.lease(f.startNow("full:1"))
	f.stop()
	f.cfg.Fractions = nil
	f.start()
	path := t.TempDir() + "/job_1"
	if err := os.MkdirAll(path+"/caelum", 0o755); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	f.agent.node.Leases[l.Job].Cgroup = api.Cgroup{Path: path, Inode: st.Ino}
	f.finish(l.Job)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the job's cgroup still exists: %v", err)
	}
}

// TestNeverUnlimited checks that no job starts if its memory cannot be limited.
func TestNeverUnlimited(t *testing.T) {
	f := newFractional(t, 1)
	broken := errors.New("broken")
	for method, fail := range map[string]func(error){
		"limit": f.limits.Fail,
		"make":  func(err error) { f.groups.Fail("Make", err) },
		"check": func(err error) { f.groups.Fail("Check", err) },
	} {
		fail(broken)
		id := f.startNow("1f.11gb:1")
		const want = "could not limit the job's GPU memory: broken"
		if l := f.lease(id); len(l.Slices) > 0 || !strings.Contains(l.Error, want) {
			t.Errorf("%s: %+v", method, l)
		}
		stuck := false // if the limit cannot be removed either
		for _, in := range f.agent.node.Cards[0].Ours {
			stuck = stuck || in.Stuck
		}
		if stuck != (method == "limit") {
			t.Errorf("%s: set aside: %v", method, stuck)
		}
		fail(nil)
		f.finish(id)
		f.users(0)
		if err := f.agent.compareGPUs(); err != nil { // destroys it
			t.Error(err)
		}
		if made, _ := f.groups.Made(); len(made) > 0 {
			t.Errorf("%s: %v", method, made)
		}
	}
	l := f.lease(f.startNow("1f.11gb:1"))
	if len(l.Slices) != 1 {
		t.Errorf("%+v", l)
	}
}

// newShared returns two jobs with fractions of one GPU, each with a process on it, in a world with an emulated /proc.
// Each call of sample samples the GPU twice, and ends the jobs that must be ended.
func newShared(t *testing.T) (f fractional, h *held, jobs [2]api.Lease, ended [2]chan error, sample func()) {
	f = newFractional(t, 1)
	h = heldIn(t, f.world)
	for k := range jobs {
		jobs[k] = f.lease(f.startNow("1f.11gb:1"))
		_, ended[k] = h.computes(f.agent.node.Cards[0].UUID, 20001, f.cgroup(jobs[k])+"/step_0/user/task_0")
		f.limits.Use(0, jobs[k].Cgroup.Path, 1000<<20)
	}
	sampler := f.agent.usage.Sampler(0)
	return f, h, jobs, ended, func() {
		for range unlimitedSamples {
			sampler.Sample()
		}
		for len(f.agent.ends) > 0 {
			f.agent.endJob(context.Background(), <-f.agent.ends)
		}
	}
}

// cgroup returns the path of a job's cgroup in /proc/PID/cgroup.
func (f fractional) cgroup(l api.Lease) string {
	return strings.TrimPrefix(l.Cgroup.Path, "/sys/fs/cgroup")
}

// TestSharedGPU checks that neighbours on a GPU are not taken for foreign processes, that each job's memory is its own,
// and that a process of no job is ended.
func TestSharedGPU(t *testing.T) {
	f, h, jobs, ended, sample := newShared(t)
	_, stranger := h.computes(f.agent.node.Cards[0].UUID, 20003, "/user.slice/user-20003.slice")
	sample()
	if err := <-stranger; err == nil {
		t.Error("a process of no job was not killed")
	}
	sample()
	for k, l := range jobs {
		shown, err := f.agent.Job(context.Background(), l.Job)
		if err != nil || shown.Slices[0].Use == nil {
			t.Fatalf("%+v, %v", shown, err)
		}
		use := *shown.Slices[0].Use
		if use.MemoryMiB != 1000 || use.Util != -1 || use.Processes != 1 || len(ended[k]) > 0 {
			t.Errorf("job %d: %+v", l.Job, use)
		}
	}
}

// TestUnlimited checks that a job whose memory is not limited is ended with a reason, and that its neighbour continues.
func TestUnlimited(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(fractional, api.Lease)
	}{
		{"uncharged", "it used 20000 MiB, its fraction 1f.11gb has 11389 MiB",
			func(f fractional, l api.Lease) { f.limits.Use(0, l.Cgroup.Path, 20000<<20) }},
		{"cgroup gone", "its memory is not limited: the job's cgroup",
			func(f fractional, l api.Lease) { f.groups.Vanish(l.Cgroup) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, jobs, ended, sample := newShared(t)
			c.spoil(f, jobs[0])
			sample()
			if err := <-ended[0]; err == nil {
				t.Error("the job's process was not killed")
			}
			calls := fmt.Sprint(f.fake.Calls())
			if !strings.Contains(calls, "EndJob") || !strings.Contains(calls, c.want) {
				t.Errorf("calls: %s", calls)
			}
			if len(ended[1]) > 0 || len(f.agent.ends) > 0 {
				t.Error("the neighbour was ended")
			}
			made, _ := f.groups.Made()
			for _, g := range made {
				if g != jobs[0].Cgroup && g != jobs[1].Cgroup {
					t.Errorf("the cgroup %v of no job exists", g)
				}
			}
		})
	}
}

// TestLimitRestored checks that a limit which another program removed is set again, and the job continues.
func TestLimitRestored(t *testing.T) {
	f, _, jobs, ended, sample := newShared(t)
	path := jobs[0].Cgroup.Path
	if err := f.limits.SetLimit(0, path, gpu.NoLimit); err != nil {
		t.Fatal(err)
	}
	sample()
	if limit, _, _ := f.limits.Limit(0, path); limit != 11389<<20 || len(ended[0]) > 0 {
		t.Errorf("the limit is %d", limit)
	}
}

// TestStuckFraction checks that a fraction is not offered, and its limit stays, while its last job has processes, also
// after a restart of the agent. The processes need not use the GPU. No monitoring program is paused for them.
func TestStuckFraction(t *testing.T) {
	f := newFractional(t, 1, func(c *config.Config) { c.DestroyHook = "/bin/true" })
	l := f.lease(f.startNow("2f.22gb:1"))
	f.groups.Enter(l.Cgroup, true)
	f.finish(l.Job)
	want := fmt.Sprintf("processes [%d] of the last job remain in %s: in use", gputest.FakePID, l.Cgroup.Path)
	for range 2 {
		if err := f.agent.compareGPUs(); err != nil {
			t.Fatal(err)
		}
		status, _ := f.agent.Status(context.Background())
		limit, _, _ := f.limits.Limit(0, l.Cgroup.Path)
		in := status.GPUs[0].Instances
		if len(in) != 1 || in[0].State != api.StateStuck || in[0].Note != want || limit != 22778<<20 {
			t.Errorf("%+v, want %q, limit %d", in, want, limit)
		}
		if !f.agent.hasLeftovers() || f.agent.hooking() || strings.Contains(f.log.String(), "is stuck") {
			t.Errorf("the processes were taken for a refusal of the driver:\n%s", &f.log)
		}
		f.users(0)
		f.stop()
		f.start()
	}
	f.groups.Enter(l.Cgroup, false)
	if err := f.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	if f.groups.Exists(l.Cgroup) {
		t.Error("the cgroup still exists")
	}
	if l := f.lease(f.startNow("full:1")); len(l.Slices) != 1 {
		t.Errorf("%+v", l)
	}
}

// TestUnlimitedNowAndThen checks that a job cannot evade the check by using more than its limit only in every second
// sample.
func TestUnlimitedNowAndThen(t *testing.T) {
	f, _, jobs, ended, _ := newShared(t)
	sampler := f.agent.usage.Sampler(0)
	for k := range 3 {
		f.limits.Use(0, jobs[0].Cgroup.Path, uint64(20000-10000*(k%2))<<20)
		sampler.Sample()
	}
	if len(f.agent.ends) != 1 {
		t.Fatalf("%d jobs are to be ended", len(f.agent.ends))
	}
	f.agent.endJob(context.Background(), <-f.agent.ends)
	if err := <-ended[0]; err == nil {
		t.Error("the job's process was not killed")
	}
}

// TestFractionFileHolder checks that a process of the job's user that keeps the GPU's device file open is ended with
// the job, but not one of another user, which may belong to a neighbour.
func TestFractionFileHolder(t *testing.T) {
	f := newFractional(t, 1)
	h := heldIn(t, f.world)
	f.agent.cfg.Foreign = config.ForeignKill
	l := f.lease(f.startNow("1f.11gb:1"))
	var ended [2]chan error
	for k := range ended {
		cmd := exec.Command("sleep", "3600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		ended[k] = make(chan error, 1)
		go func() { ended[k] <- cmd.Wait() }()
		h.process(cmd.Process.Pid, 20001+k, [2]string{f.agent.caps.DeviceFile(0)})
	}
	f.finish(l.Job)
	if err := <-ended[0]; err == nil {
		t.Error("the process of the job's user was not killed")
	}
	if len(ended[1]) > 0 {
		t.Error("a process of another user was killed")
	}
}
