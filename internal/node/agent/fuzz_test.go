package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/api/apitest"
	"caelum/internal/slurm"
)

// leaseForm matches the format of a lease file (docs/internals/interfaces.md).
var leaseForm = regexp.MustCompile(
	`^caelum-lease 1\njob ([1-9]\d*)\nrestart (\d|[1-9]\d+)\nuid (\d|[1-9]\d+)\nindex (absolute|relative)\n` +
		`(error [^\x00-\x1f\x7f]+\n|(slot (\d|[1-9]\d+) (-|MIG-[0-9A-Za-z/-]+)\n)+(device \d+:\d+\n)*)end\n$`,
)

// agentCalls holds the seed inputs of FuzzAgent.
var agentCalls = []struct {
	root         bool
	method, path string
	body         string
}{
	{true, "POST", "/v1/jobs/2/lease", `{"restart":0,"uid":1001,"gid":1001,"slots":[1]}`},
	{true, "POST", "/v1/jobs/2/lease", `{"restart":0,"uid":1001,"slots":[]}`},
	{true, "POST", "/v1/jobs/3/lease", `{"restart":0,"uid":1001,"slots":[5,3]}`},
	{true, "POST", "/v1/jobs/3/lease", `{"restart":1,"uid":4294967295,"slots":[3,3]}`},
	{true, "POST", "/v1/jobs/1/lease", `{"restart":7,"uid":1001,"slots":[0,1,2,3,4,5,6]}`},
	{true, "POST", "/v1/jobs/4/lease", `{"restart":-1,"slots":[-1]}`},
	{true, "POST", "/v1/jobs/4294967295/lease", `{"slots":[65535],"mig":"../../x\n"}`},
	{true, "DELETE", "/v1/jobs/1/lease?restart=0", ""},
	{true, "DELETE", "/v1/jobs/3/lease?restart=65535", ""},
	{false, "DELETE", "/v1/jobs/1/lease?restart=0", ""},
	{false, "POST", "/v1/jobs/2/lease", `{"restart":0,"uid":1001,"slots":[1]}`},
	{false, "GET", "/v1/jobs/1", ""},
	{true, "GET", "/v1/status", ""},
	{false, "POST", "/v1/jobs/1/memory", `{"allocated":1,"ooms":1}`},
	{true, "POST", "/v1/jobs/1/memory", `{"allocated":1,"ooms":1}`},
}

// FuzzAgent sends arbitrary requests, as root and as a user, to the socket of a complete agent with emulated GPUs and
// a slurmctld in memory. A user's requests must not change anything. After any request from root, the agent must
// still run, its lease files must be readable, and no two jobs may hold the same slice.
func FuzzAgent(f *testing.F) {
	if os.Getuid() != 0 {
		f.Skip("needs root to be another user")
	}
	for _, s := range agentCalls {
		f.Add(s.root, s.method, s.path, []byte(s.body))
	}
	w := newBusyWorld(f)
	socket, errs := w.serve(f)
	w.agent.log.Logger.SetOutput(io.Discard)
	f.Fuzz(func(t *testing.T, root bool, method, path string, body []byte) {
		request := fmt.Appendf(
			nil,
			"%s %s HTTP/1.1\r\nHost: caelumd\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			method,
			path,
			len(body),
			body,
		)
		uid := uint32(65534)
		if root {
			uid = 0
		}
		w.reset(t)
		before := ""
		if !root {
			before = w.everything(t)
		}
		raw, err := apitest.Send(socket, uid, request)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		if logged := errs(); strings.Contains(logged, "panic") {
			t.Fatal(logged)
		}
		if !root {
			if after := w.everything(t); after != before {
				t.Fatalf("a user changed something:\n%s\nnow\n%s", before, after)
			}
		}
		w.checkHolds(t)
		if !strings.Contains(method, http.MethodHead) {
			checkAnswers(t, raw)
		}
	})
}

// checkAnswers checks that all answers are valid JSON, and that none is an internal error of the agent.
func checkAnswers(t *testing.T, raw []byte) {
	answers, err := apitest.Answers(raw)
	if err != nil {
		t.Fatalf("%v\n%q", err, raw)
	}
	for _, a := range answers {
		if a.JSON && !json.Valid(a.Body) || a.JSON && a.Code >= 500 && a.Code != http.StatusServiceUnavailable {
			t.Fatalf("%d: %q", a.Code, a.Body)
		}
	}
}

// newBusyWorld returns a world with jobs in every state: job 1 has its lease, jobs 2 and 3 run without one, job 4
// waits for a free slice, and job 5 is unknown to slurmctld.
func newBusyWorld(f *testing.F) *world {
	w := newWorld(f, 1)
	for range 2 {
		w.submit(job(1, "1g.5gb:1"))
		w.publish()
		w.fake.Tick()
		w.prologs.Wait()
		w.fake.Prolog(func(slurm.Job, string) {})
	}
	w.submit(job(2, "2g.10gb:2"))
	w.publish()
	w.fake.Tick()
	w.submit(job(1, "7g.40gb:1"))
	gone := w.submit(job(1, "1g.5gb:1"))
	if err := w.fake.Cancel(gone); err != nil {
		f.Fatal(err)
	}
	w.fake.Forget(gone)
	return w
}

// serve serves the agent's socket. It returns the socket's path, and a function that returns the lines that were
// added to the server's log since it was last called.
func (w *world) serve(f *testing.F) (socket string, errs func() string) {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	l, err := api.Listen(dir, nil)
	if err != nil {
		f.Fatal(err)
	}
	server := api.NewServer(w.agent)
	errLog := new(logText)
	server.ErrorLog = log.New(errLog, "", 0)
	go server.Serve(l)
	f.Cleanup(func() { server.Close() })
	return filepath.Join(dir, api.SocketName), func() string {
		errLog.mu.Lock()
		defer errLog.mu.Unlock()
		logged := errLog.text.String()
		errLog.text.Reset()
		return logged
	}
}

// reset restores the initial state, in which only job 1 has a lease, so that a request's result does not depend on
// earlier requests.
func (w *world) reset(t *testing.T) {
	leases, err := w.agent.ledger.Leases()
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) == 1 && leases[0].Job == 1 && leases[0].Restart == 0 {
		return
	}
	for _, l := range leases {
		if err := w.agent.Release(t.Context(), l.Job, l.Restart); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.agent.Lease(t.Context(), 1, api.LeaseRequest{UID: 20001, GID: 20001, Slots: []int{0}}); err != nil {
		t.Fatal(err)
	}
	if err := w.agent.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// everything formats the state that a call could change: the agent's status, the lease files, the GPU's instances,
// and the number of writes to slurmctld.
func (w *world) everything(t *testing.T) string {
	var b strings.Builder
	status, err := w.agent.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status.PublishedAt = 0 // excluded, because the agent can start a pass at any time
	text, _ := json.Marshal(status)
	b.Write(text)
	files := w.leaseFiles(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "\n%s\n%s", name, files[name])
	}
	gpus, err := w.node.Instances(0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "\n%+v\n%d writes", gpus, len(w.fake.Writes()))
	return b.String()
}

func (w *world) leaseFiles(t *testing.T) map[string]string {
	dir := filepath.Join(w.cfg.RunDir, "jobs")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// checkHolds checks that every lease has a lease file that the plugin accepts, and that no two jobs hold the same or
// overlapping slices.
func (w *world) checkHolds(t *testing.T) {
	leases, err := w.agent.ledger.Leases()
	if err != nil {
		t.Fatal(err)
	}
	files := w.leaseFiles(t)
	var units [8]uint32
	for _, l := range leases {
		text := files[fmt.Sprint(l.Job)]
		if !leaseForm.MatchString(text) {
			t.Fatalf("the lease file of job %d:\n%s", l.Job, text)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(text) {
			if word := strings.Fields(line); word[0] == "slot" && seen[word[1]] {
				t.Fatalf("a slot twice:\n%s", text)
			} else if word[0] == "slot" {
				seen[word[1]] = true
			}
		}
		for _, s := range l.Slices {
			if !slices.Contains(l.Slots, s.Slot) || !strings.Contains(text, s.UUID) {
				t.Fatalf("job %d: slice %+v\n%s", l.Job, s, text)
			}
			for u := s.Start; u < s.Start+s.Size; u++ {
				if units[u] != 0 {
					t.Fatalf("unit %d belongs to jobs %d and %d", u, units[u], l.Job)
				}
				units[u] = l.Job
			}
		}
		delete(files, fmt.Sprint(l.Job))
	}
	if len(files) > 0 {
		t.Fatalf("files without a lease: %v", files)
	}
}
