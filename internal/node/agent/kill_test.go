package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/ledger"
	"caelum/internal/node/usage/usagetest"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// TestMain also runs the agent that TestKill kills. It is a separate process with the real socket and ledger, and
// with emulated GPUs. Its slurmctld is in the test's process, and called through a socket.
func TestMain(m *testing.M) {
	if text := os.Getenv("CAELUM_TEST_AGENT"); text != "" {
		if err := victim(text); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type victimConfig struct {
	Config     config.Config
	Library    string
	Proc       string // gputest.Node.Proc
	Controller string // path of a socket
}

func victim(text string) error {
	var v victimConfig
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return err
	}
	client, err := rpc.Dial("unix", v.Controller)
	if err != nil {
		return err
	}
	hw, err := gpu.OpenNVML(v.Library, gpu.Caps{Dev: v.Config.DeviceDir, Proc: v.Proc})
	if err != nil {
		return err
	}
	log := logrus.New()
	driver, m := gpu.Hardware(hw), machine{proc: v.Proc, procs: &gpu.Processes{Proc: "/proc"}}
	if len(v.Config.Fractions) > 0 {
		driver, m.groups = remoteLimits{hw, client}, &remoteGroups{c: client}
	}
	a, err := newAgent(v.Config, driver, remote{client}, log.WithField("node", "n1"), m)
	if err != nil {
		return err
	}
	a.node.Now = remote{client}.now
	a.Keep(usagetest.NewRepository(), usagetest.NewAccounting())
	a.runOf = a.fullRun
	go a.foreseeAll()
	return a.Run(context.Background())
}

// fullRun returns a run that has used all memory of its slice.
func (a *Agent) fullRun(id uint32) (predict.Run, bool) {
	a.node.Lock()
	defer a.node.Unlock()
	l := a.node.Leases[id]
	if l == nil || len(l.Slices) == 0 {
		return predict.Run{}, false
	}
	full := float64(l.Slices[0].MemoryMiB)
	return predict.Run{
		Job: id, Restart: l.Restart, GPUType: "a100", Profile: l.Slices[0].Profile, Slices: 1, Samples: 1,
		PeakMiB: full,
	}, true
}

// foreseeAll repeats, for each job that may grow before a failure, the forecast that it needs one GiB more than its
// slice has.
func (a *Agent) foreseeAll() {
	for range time.Tick(20 * time.Millisecond) {
		a.node.Lock()
		peaks := map[uint32]float64{}
		for id, l := range a.node.Leases {
			if l.Grow == api.GrowForecast && len(l.Slices) > 0 {
				peaks[id] = float64(l.Slices[0].MemoryMiB + 1024)
			}
		}
		a.node.Unlock()
		for id, mib := range peaks {
			a.foresee(id, predict.Forecast{PeakMiB: mib, Exceeds: true})
		}
	}
}

// remote is the agent's Slurmctld. It forwards all calls to the slurmctld in the test's process.
type remote struct{ c *rpc.Client }

// Request is a call to any method of Slurmctld, with its arguments.
type Request struct {
	Op   string
	Node string
	Job  uint32
	Text string
	GRES slurm.GRESList
}

// Reply is the answer to a call: either the results as JSON, or an error.
type Reply struct {
	Body []byte
	Err  string
}

var sentinels = []error{slurm.ErrNoJob, slurm.ErrNoNode, slurm.ErrJobState, slurm.ErrUnreachable}

func (r remote) do(req Request, out any) error {
	var rep Reply
	if err := r.c.Call("Server.Do", req, &rep); err != nil {
		return fmt.Errorf("%w: %v", slurm.ErrUnreachable, err)
	}
	if rep.Err != "" {
		for _, s := range sentinels {
			if strings.Contains(rep.Err, s.Error()) {
				return fmt.Errorf("%w: %s", s, rep.Err)
			}
		}
		return errors.New(rep.Err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(rep.Body, out)
}

// now returns the time of the test's clock, or the zero time if the test has ended.
func (r remote) now() (t time.Time) {
	if r.do(Request{Op: "Now"}, &t) != nil {
		return time.Time{}
	}
	return t
}

func (r remote) Node(_ context.Context, name string) (n slurm.Node, err error) {
	return n, r.do(Request{Op: "Node", Node: name}, &n)
}
func (r remote) Nodes(context.Context) (n []slurm.Node, err error) {
	return n, r.do(Request{Op: "Nodes"}, &n)
}
func (r remote) NamedNodes(_ context.Context, names ...string) (n []slurm.Node, err error) {
	return n, r.do(Request{Op: "NamedNodes", Text: strings.Join(names, ",")}, &n)
}
func (r remote) UpdateNode(_ context.Context, node string, gres slurm.GRESList, extra string) error {
	return r.do(Request{Op: "UpdateNode", Node: node, GRES: gres, Text: extra}, nil)
}
func (r remote) SetNodeExtra(_ context.Context, node, text string) error {
	return r.do(Request{Op: "SetNodeExtra", Node: node, Text: text}, nil)
}
func (r remote) Job(_ context.Context, id uint32) (j slurm.Job, err error) {
	return j, r.do(Request{Op: "Job", Job: id}, &j)
}
func (r remote) Jobs(context.Context) (all []slurm.Job, err error) {
	return all, r.do(Request{Op: "Jobs"}, &all)
}

func (r remote) Queue(context.Context) (q slurm.Queue, err error) {
	return q, r.do(Request{Op: "Queue"}, &q)
}
func (r remote) Config(context.Context) (c slurm.Config, err error) {
	return c, r.do(Request{Op: "Config"}, &c)
}
func (r remote) RequeueHold(_ context.Context, id uint32) error {
	return r.do(Request{Op: "RequeueHold", Job: id}, nil)
}
func (r remote) RequeueFailed(_ context.Context, id uint32) error {
	return r.do(Request{Op: "RequeueFailed", Job: id}, nil)
}
func (r remote) EndJob(_ context.Context, id uint32, reason string, _ func(slurm.Job) bool) error {
	return r.do(Request{Op: "EndJob", Job: id, Text: reason}, nil)
}
func (r remote) Hold(_ context.Context, id uint32) error {
	return r.do(Request{Op: "Hold", Job: id}, nil)
}
func (r remote) Release(_ context.Context, id uint32) error {
	return r.do(Request{Op: "Release", Job: id}, nil)
}
func (r remote) SetJobGRES(_ context.Context, id uint32, gres slurm.GRESList) error {
	return r.do(Request{Op: "SetJobGRES", Job: id, GRES: gres}, nil)
}
func (r remote) SetAdminComment(_ context.Context, id uint32, text string) error {
	return r.do(Request{Op: "SetAdminComment", Job: id, Text: text}, nil)
}

// Server answers remote's calls in the test's process.
type Server struct {
	fake    *slurmtest.Fake
	cgroups *cgroups
}

// Do executes one call.
func (s *Server) Do(req Request, rep *Reply) error {
	ctx := context.Background()
	var out any
	var err error
	switch req.Op {
	case "Node":
		out, err = s.fake.Node(ctx, req.Node)
	case "Now":
		out = s.fake.Now()
	case "Nodes":
		out, err = s.fake.Nodes(ctx)
	case "NamedNodes":
		out, err = s.fake.NamedNodes(ctx, strings.Split(req.Text, ",")...)
	case "UpdateNode":
		err = s.fake.UpdateNode(ctx, req.Node, req.GRES, req.Text)
	case "SetNodeExtra":
		err = s.fake.SetNodeExtra(ctx, req.Node, req.Text)
	case "Job":
		out, err = s.fake.Job(ctx, req.Job)
	case "Jobs":
		out, err = s.fake.Jobs(ctx)
	case "Queue":
		out, err = s.fake.Queue(ctx)
	case "Config":
		out, err = s.fake.Config(ctx)
	case "RequeueHold":
		err = s.fake.RequeueHold(ctx, req.Job)
	case "RequeueFailed":
		err = s.fake.RequeueFailed(ctx, req.Job)
	case "Hold":
		err = s.fake.Hold(ctx, req.Job)
	case "Release":
		err = s.fake.Release(ctx, req.Job)
	case "SetJobGRES":
		err = s.fake.SetJobGRES(ctx, req.Job, req.GRES)
	case "SetAdminComment":
		err = s.fake.SetAdminComment(ctx, req.Job, req.Text)
	default:
		err = fmt.Errorf("unknown call %s", req.Op)
	}
	if err != nil {
		rep.Err = err.Error()
		return nil
	}
	rep.Body, err = json.Marshal(out)
	return err
}

// TestKill kills the agent at every failpoint, and in the middle of a create, while jobs start and end. After each
// recovery, no two jobs may hold the same slice, and no slice may be lost. Every running job must still have the
// slice that it had before the kill, and the jobs that slurmctld started after it must be running. A job's slices
// must be in the job map when its prolog ends, and gone when its epilog ends. CAELUM_KILLS is the number of kills at
// each failpoint, by default 2. With -short, TestKill kills the agent once at three of the failpoints and in the middle
// of a create, and TestKillFull once at two others and in the middle of a switch of the MIG mode. TestKillHook covers
// the destroy hook's failpoints.
func TestKill(t *testing.T) {
	killEverywhere(t, newCampaign, onMIG, 0, "create.half")
}

// TestKillFull is like TestKill, but with jobs that use slices and jobs that use full GPUs. It also kills the agent
// in the middle of a switch of the MIG mode.
func TestKillFull(t *testing.T) {
	killEverywhere(t, newFullCampaign, onMIG, 6, "switch.torn", "switch.before", "switch.after")
}

// onMIG reports whether the agent reaches a failpoint on GPUs without fractions, and without a destroy hook.
func onMIG(point string) bool {
	return !strings.HasPrefix(point, "hook.") && !strings.Contains(point, "limit")
}

// killEverywhere kills the agent at all failpoints that it reaches, and at the points in further. With -short, it kills
// the agent only at the failpoints whose index in failpoint.Points has the given remainder modulo 12, and at the first
// point in further.
func killEverywhere(
	t *testing.T, campaign func(testing.TB) *campaign, reaches func(string) bool, remainder int, further ...string,
) {
	each := 2
	points := slices.Clone(failpoint.Points)
	if testing.Short() {
		each, further = 1, further[:min(1, len(further))]
		points = slices.DeleteFunc(points, func(p string) bool {
			return slices.Index(failpoint.Points, p)%12 != remainder
		})
	}
	each = envInt(t, "CAELUM_KILLS", each)
	var recoveries, unmapped []time.Duration
	for _, point := range append(points, further...) {
		if !reaches(point) && slices.Contains(failpoint.Points, point) {
			continue
		}
		t.Run(point, func(t *testing.T) {
			k := campaign(t)
			for range each {
				k.killAt(point)
			}
			recoveries = append(recoveries, k.recoveries...)
			k.settle()
			unmapped = append(unmapped, k.unmapped...)
		})
	}
	t.Logf("right offers again after a kill: %s", distribution(recoveries))
	t.Logf("ended epilog of a job with slices, without files in the job map: %s", distribution(unmapped))
}

func distribution(all []time.Duration) string {
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%d times, %v (median), %v (p99), %v (most)", n, all[n/2], all[min(n-1, n*99/100)], all[n-1])
}

type campaign struct {
	t       testing.TB
	rng     *rand.Rand
	node    *gputest.Node
	fake    *slurmtest.Fake
	wants   []string // the slices, one of which each job requests
	cfg     config.Config
	rpcPath string
	client  *api.Client
	prologs sync.WaitGroup
	epilogs sync.WaitGroup
	mu      sync.Mutex
	leases  map[uint32]api.Lease // the leases that the prologs of the running jobs received
	cgroups cgroups              // of the jobs with fractions

	submitted  int // an upper bound on the job ids
	recoveries []time.Duration
	unmapped   []time.Duration // for each job with slices: the time from its epilog's first call to its end
	agent      *exec.Cmd
	died       chan struct{}
	output     logText
}

func newCampaign(t testing.TB) *campaign {
	return newCampaignOf(t, "A100-40GB", fmt.Sprintf(closedA100, 14, 56), fullA100, soakProfiles[:], config.Config{
		DefaultProfile: "7g.40gb",
	})
}

func newFullCampaign(t testing.TB) *campaign {
	wants := []string{"1g.10gb", "3g.40gb", "7g.80gb", "full", "full", "full:2"}
	return newCampaignOf(t, "H100-80GB", fmt.Sprintf(closedH100, 14, 56), allH100, wants, config.Config{
		DefaultProfile: "7g.80gb", WholeGPUs: "auto",
	})
}

func newCampaignOf(
	t testing.TB, model, closed, catalogue string, wants []string, cfg config.Config,
) *campaign {
	k := &campaign{
		t:      t,
		rng:    rand.New(rand.NewPCG(7, 7)),
		node:   gputest.New(t, model, 2),
		wants:  wants,
		leases: map[uint32]api.Lease{},
	}
	k.fake = slurmtest.New(
		slurmtest.Node{Name: "n1", Partitions: []string{"gpu"}, Gres: gres(t, closed)},
		slurmtest.Node{Name: "mig-catalog1", Partitions: []string{"gpu"}, Catalogue: true, Gres: gres(t, catalogue)},
	)
	k.fake.Prolog(func(j slurm.Job, _ string) { k.prologs.Go(func() { k.prolog(j) }) })
	k.fake.Epilog(func(j slurm.Job, _ string) { k.epilog(j) })
	dir := t.TempDir()
	k.cfg = cfg
	k.cfg.GrowLimit = 3
	k.cfg.Node, k.cfg.DeviceDir = "n1", k.node.Dev
	k.cfg.RunDir, k.cfg.StateDir = filepath.Join(dir, "run"), filepath.Join(dir, "state")
	k.cfg.JobMapDir = filepath.Join(dir, "map")
	k.cfg.PollInterval, k.cfg.SampleInterval = 20*time.Millisecond, 5*time.Millisecond
	k.cfg.AccountingField = string(slurm.AdminComment)
	k.cfg.LogLevel, k.cfg.LogFormat = "info", "text"
	k.client = api.NewClient(k.cfg.RunDir)
	k.rpcPath = filepath.Join(dir, "slurmctld")
	l, err := net.Listen("unix", k.rpcPath)
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer()
	if err := server.Register(&Server{k.fake, &k.cgroups}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		k.kill()
		k.prologs.Wait()
		k.epilogs.Wait()
		if t.Failed() {
			t.Logf("the agents' logs:\n%s", tail(k.output.String(), 6000))
		}
	})
	return k
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// start starts an agent that ends at the given failpoint. If point is empty, it starts an ordinary agent and waits
// for correct offers.
func (k *campaign) start(point string) {
	k.t.Helper()
	text, err := json.Marshal(
		victimConfig{
			Config: k.cfg, Library: filepath.Join(k.node.Build(), "libnvidia-ml.so.1"), Proc: k.node.Proc,
			Controller: k.rpcPath,
		},
	)
	if err != nil {
		k.t.Fatal(err)
	}
	began := time.Now()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CAELUM_TEST_AGENT="+string(text), "CAELUM_FAILPOINT="+point)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	died := make(chan struct{})
	go func() {
		io.Copy(&k.output, pipe)
		cmd.Wait()
		close(died)
	}()
	k.agent, k.died = cmd, died
	if point != "" {
		return
	}
	// The offers are correct once the agent has published without an error.
	for {
		s, err := k.client.Status(context.Background())
		if err == nil && s.PublishedAt != 0 && s.PublishError == "" {
			k.recoveries = append(k.recoveries, time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-died:
			k.t.Fatal("the agent ended without a kill")
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(began) > 2*time.Minute {
			k.t.Fatalf("no right offers two minutes after the start: %+v, %v", s, err)
		}
	}
}

func (k *campaign) kill() {
	if k.agent != nil {
		k.agent.Process.Kill()
		<-k.died
		k.agent = nil
	}
}

// userOf returns the user of a job. Successive jobs belong to different users, so that compute instances are
// re-created.
func userOf(job uint32) uint32 { return 20001 + job%2 }

// killAt runs an agent, while jobs start and end, until it is killed at the given point. Then it starts another
// agent, which must recover.
func (k *campaign) killAt(point string) {
	k.t.Helper()
	q, _ := k.fake.Queue(context.Background())
	for _, w := range q.Waiting { // including jobs that an agent has given up on, which would never start
		k.fake.Cancel(w.ID)
	}
	version := "22.05.8"
	if point == failpoint.GrowRetyped || k.rng.IntN(2) == 0 {
		version = "24.11.5"
	}
	k.fake.SetConfig("SLURM_VERSION", version)
	nth := strconv.Itoa(1 + k.rng.IntN(3))
	if when, ok := strings.CutPrefix(point, "switch."); ok {
		k.node.Emulator(k.t, "fault", "add", "--call", "SET_MIG_MODE", "--nth", nth, "--kill", when)
		k.start("none")
	} else if point == "create.half" {
		k.node.Emulator(k.t, "fault", "add", "--call", "CREATE_CI", "--nth", nth, "--kill", "before")
		k.start("none")
	} else {
		k.start(point + ":" + nth)
	}
	hit := false
	began := time.Now()
	for step := 0; (step < 4000 || time.Since(began) < 2*time.Minute) && !hit; step++ { // the machine may be slow
		k.step(point)
		select {
		case <-k.died:
			hit = true
		default:
		}
	}
	if !hit {
		k.t.Fatalf("%s was never reached", point)
	}
	k.agent = nil
	k.node.Emulator(k.t, "fault", "clear")
	k.start("")
	k.epilogs.Wait() // interrupted epilogs and prologs repeat their calls
	k.prologs.Wait()
	k.check(point)
	if k.t.Failed() {
		k.t.FailNow()
	}
	for id := range uint32(k.submitted) {
		k.fake.Forget(id + 1) // the ended jobs
	}
	k.kill() // also kills this agent, at an arbitrary point
}

// step causes one random event: a submission, a scheduling cycle, the end of a job, or an advance of the clock.
// Events that lead to the given failpoint are somewhat more frequent than others.
func (k *campaign) step(point string) {
	live := k.running()
	switch k.rng.IntN(7) {
	case 0, 1:
		if q, _ := k.fake.Queue(context.Background()); len(live) < 12 && len(q.Waiting) < 6 {
			k.submitted++
			want := k.wants[k.rng.IntN(len(k.wants))]
			j := job(1, want)
			if want == "full:2" {
				j = job(2, want)
			}
			switch {
			case strings.HasPrefix(point, "giveback") && k.rng.IntN(2) == 0:
				j = job(1, "") // the job gets the default profile, for which there is rarely room
			case strings.HasPrefix(point, "grow") && k.rng.IntN(2) == 0:
				j = growingJob(k.wants[0], "oom")
			case strings.HasPrefix(point, "foreseen") && k.rng.IntN(2) == 0:
				j = growingJob(k.wants[0], "forecast")
			case strings.HasPrefix(point, "held") || k.rng.IntN(10) == 0:
				j.ReqNodes, j.AdminComment = []string{"n1"}, "caelum:held"
				k.fake.SubmitHeld(j)
				return
			}
			k.fake.Submit(j) // rejected if no node has ever offered its profile
		}
	case 2, 3:
		k.fake.Tick()
	case 4, 5:
		if len(live) > 0 {
			id := live[k.rng.IntN(len(live))]
			k.mu.Lock()
			_, leased := k.leases[id]
			k.mu.Unlock()
			if !leased {
				return
			}
			if j, err := k.fake.Job(context.Background(), id); err == nil && tags.GrowMode(j) != "" {
				k.fake.Fail(id)
			} else {
				k.fake.End(id)
			}
			k.epilogs.Go(k.fake.RunEpilogs)
		}
	case 6:
		k.fake.Advance(time.Minute)
		k.epilogs.Go(k.fake.RunEpilogs) // runs the epilogs of requeued jobs
	}
	time.Sleep(time.Millisecond)
}

// running lists the jobs that hold resources on the node.
func (k *campaign) running() []uint32 {
	q, err := k.fake.Queue(context.Background())
	jobs := q.On("n1")
	if err != nil {
		k.t.Fatal(err)
	}
	var ids []uint32
	for _, j := range jobs {
		if j.Holds() {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// patient repeats a job's call as the plugin does, but with shorter pauses, until the test ends. It reports whether the
// call succeeded.
func (k *campaign) patient(what string, job uint32, call func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	for {
		err := call(ctx)
		var answer *api.Error
		switch {
		case err == nil:
			return true
		case k.t.Context().Err() != nil: // the test has failed
			return false
		case ctx.Err() != nil || errors.As(err, &answer) && answer.Code != http.StatusServiceUnavailable:
			k.t.Errorf("%s of job %d: %v", what, job, err)
			return false
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func (k *campaign) prolog(j slurm.Job) {
	slots := 0
	for _, g := range j.Allocated["n1"].Named("gpu") {
		slots += g.Count
	}
	req := api.LeaseRequest{Restart: j.Restarts, UID: userOf(j.ID), GID: userOf(j.ID)}
	for i := range slots {
		req.Slots = append(req.Slots, i)
	}
	var lease *api.Lease
	if !k.patient("prolog", j.ID, func(ctx context.Context) (err error) {
		lease, err = k.client.Lease(ctx, j.ID, req)
		return err
	}) {
		return
	}
	want := 0
	for _, s := range lease.Slices {
		if want++; mapName.MatchString(s.UUID) {
			want++
		}
	}
	if n := k.mapping(j.ID); n != want {
		k.t.Errorf("job %d has %d mapping files when its prolog ends, want %d", j.ID, n, want)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leases[j.ID] = *lease
}

func (k *campaign) epilog(j slurm.Job) {
	k.prologs.Wait() // slurmd runs a job's epilog after its prolog, so waiting for all prologs is sufficient
	k.mu.Lock()
	had := len(k.leases[j.ID].Slices) > 0
	delete(k.leases, j.ID)
	k.mu.Unlock()
	began := time.Now()
	release := func(ctx context.Context) error { return k.client.Release(ctx, j.ID, j.Restarts) }
	if !k.patient("epilog", j.ID, release) {
		return
	}
	if n := k.mapping(j.ID); n != 0 {
		k.t.Errorf("job %d has %d mapping files when its epilog ends", j.ID, n)
	}
	if had {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unmapped = append(k.unmapped, time.Since(began).Round(time.Millisecond))
	}
}

// mapping returns the number of the job map's files that name a job.
func (k *campaign) mapping(id uint32) (n int) {
	for name, text := range mapped(k.t, k.cfg.JobMapDir) {
		if !mapName.MatchString(name) {
			continue // a temporary file
		}
		for line := range strings.Lines(text) {
			if line == fmt.Sprintf("%d\n", id) || line == fmt.Sprintf("%d %d\n", id, userOf(id)) {
				n++
			}
		}
	}
	return n
}

// mapRight checks that the job map lists exactly the leased instances.
func (k *campaign) mapRight(s *api.Status) error {
	want, jobs := map[string]string{}, map[string][]uint32{}
	for _, g := range s.GPUs {
		for _, in := range g.Instances {
			if in.State != api.StateLeased {
				continue
			}
			name := fmt.Sprint(g.Index)
			if in.GI > gpu.FullGI {
				name += fmt.Sprintf(".%d", in.GI)
			}
			jobs[name] = append(jobs[name], in.Job)
			if mapName.MatchString(in.UUID) {
				want[in.UUID] = fmt.Sprintf("%d %d\n", in.Job, userOf(in.Job))
			}
		}
	}
	for name, ids := range jobs {
		for _, id := range slices.Sorted(slices.Values(ids)) {
			want[name] += fmt.Sprintf("%d\n", id)
		}
	}
	if got := mapped(k.t, k.cfg.JobMapDir); !maps.Equal(got, want) {
		return fmt.Errorf("the job map contains %q, want %q", got, want)
	}
	return nil
}

// check compares the leases that prologs received with the leases of the recovered agent, and with the instances on the
// GPUs.
func (k *campaign) check(point string) {
	k.t.Helper()
	if err := k.verify(); err != nil {
		// A job may have ended between two readings, but a real error persists.
		time.Sleep(200 * time.Millisecond)
		k.prologs.Wait()
		if err = k.verify(); err != nil {
			k.t.Errorf("after a kill at %s: %v", point, err)
		}
	}
}

func (k *campaign) verify() error {
	s, err := k.client.Status(context.Background())
	if err != nil {
		return err
	}
	if err := k.mapRight(s); err != nil {
		return err
	}
	if len(k.cfg.Fractions) > 0 {
		return k.verifyFractions(s)
	}
	exists := map[string]gpu.Instance{}
	if _, err := k.node.GPUs(); err != nil {
		return err
	}
	for g := range 2 {
		list, err := k.node.Instances(g)
		if err != nil {
			return err
		}
		for _, in := range list {
			if len(in.CIs) != 1 {
				return fmt.Errorf("GPU %d: %s at %d has no compute instance", g, in.Profile, in.Start)
			}
			exists[in.UUID] = in
		}
		if err := k.deviceFile(g, list); err != nil {
			return err
		}
	}
	if err := leaked(s); err != nil {
		return err
	}
	return k.leasesExist(exists)
}

// leaked returns an error if an instance is neither idle nor leased.
func leaked(s *api.Status) error {
	for _, g := range s.GPUs {
		for _, in := range g.Instances {
			if in.State == "foreign" || in.State == "stuck" {
				return fmt.Errorf("GPU %d: %s at %d is %s: leaked", g.Index, in.Profile, in.Start, in.State)
			}
		}
	}
	return nil
}

// leasesExist checks that the running jobs have their leases, and that no instance belongs to two jobs. exists holds
// the instances on the GPUs.
func (k *campaign) leasesExist(exists map[string]gpu.Instance) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	holder := map[string]uint32{}
	for id, l := range k.leases {
		j, err := k.fake.Job(context.Background(), id)
		if err != nil || !j.Holds() || l.Error != "" {
			continue
		}
		now, err := k.client.Job(context.Background(), id)
		if err != nil {
			return fmt.Errorf("job %d runs without a lease: %w", id, err)
		}
		for i, sl := range l.Slices {
			if other, twice := holder[sl.UUID]; twice {
				return fmt.Errorf("jobs %d and %d both hold %s", id, other, sl.UUID)
			}
			holder[sl.UUID] = id
			if now.Slices[i].UUID != sl.UUID {
				return fmt.Errorf("job %d had %s and now has %s", id, sl.UUID, now.Slices[i].UUID)
			}
			if err := largeEnough(j, sl); err != nil {
				return err
			}
			in, ok := exists[sl.UUID]
			moved := in.Start != sl.Start && !mig.IsFraction(sl.Profile) // the agent moves these together
			if !ok || moved || in.Profile != sl.Profile {
				return fmt.Errorf("job %d holds %s, which is not on the GPU", id, sl.UUID)
			}
		}
		if _, err := os.Stat(filepath.Join(k.cfg.RunDir, "jobs", fmt.Sprint(id))); err != nil {
			return fmt.Errorf("job %d: %w", id, err)
		}
	}
	return nil
}

// largeEnough checks that the slice of a grown job is larger than each slice that was too small.
func largeEnough(j slurm.Job, s api.Slice) error {
	memory := func(profile string) float64 {
		_, gb := mig.Claims(profile)
		return max(gb, float64(mig.FractionGB(profile)))
	}
	for _, g := range tags.Growths(j) {
		if memory(s.Profile) <= memory(g.Profile) && j.Restarts > 0 && s.Profile != mig.Full {
			return fmt.Errorf("job %d has grown (%s), but runs on %s", j.ID, j.AdminComment, s.Profile)
		}
	}
	return nil
}

// deviceFile checks the owner and mode of a GPU's device file: only root or the job's user may open a full GPU.
func (k *campaign) deviceFile(g int, list []gpu.Instance) error {
	path := gpu.Caps{Dev: k.node.Dev}.DeviceFile(g)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mode, want, uid := info.Mode().Perm(), os.FileMode(0o666), uint32(0)
	if len(list) == 1 && list[0].GI == gpu.FullGI {
		want = 0o600
		k.mu.Lock()
		defer k.mu.Unlock()
		for id, l := range k.leases {
			if j, err := k.fake.Job(context.Background(), id); err != nil || !j.Holds() {
				continue
			}
			for _, s := range l.Slices {
				if s.UUID == list[0].UUID {
					uid = l.UID
				}
			}
		}
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; mode != want || owner != uid {
		return fmt.Errorf("%s has mode %#o and owner %d, want %#o and %d", path, mode, owner, want, uid)
	}
	return nil
}

// settle ends all jobs, and checks that no leases and no intents remain.
func (k *campaign) settle() {
	k.t.Helper()
	k.start("")
	for range 200 {
		for _, id := range k.running() {
			k.fake.Cancel(id)
		}
		k.fake.RunEpilogs()
		q, _ := k.fake.Queue(context.Background())
		for _, w := range q.Waiting {
			k.fake.Cancel(w.ID)
		}
		if len(q.Waiting) == 0 && len(k.running()) == 0 {
			break
		}
	}
	k.prologs.Wait()
	k.check("the end")
	s, err := k.client.Status(context.Background())
	if err != nil {
		k.t.Fatal(err)
	}
	for _, l := range s.Leases {
		if j, err := k.fake.Job(context.Background(), l.Job); err == nil && !j.Present() {
			k.t.Errorf("job %d is over (%s) and still has a lease", l.Job, j.State)
		}
	}
	// The agent may be killed while it re-creates a compute instance. Its next start must settle this intent.
	left := k.killedWith()
	for tries := 0; len(left) > 0 && tries < 3; tries++ {
		k.start("")
		left = k.killedWith()
	}
	if len(left) > 0 {
		k.t.Errorf("intents left: %v", left)
	}
}

// killedWith kills the agent and returns the intents that are in its ledger.
func (k *campaign) killedWith() []ledger.Intent {
	k.t.Helper()
	k.kill()
	l, err := ledger.Open(filepath.Join(k.cfg.StateDir, "ledger.db"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer l.Close()
	intents, err := l.Intents()
	if err != nil {
		k.t.Fatal(err)
	}
	return intents
}
