package agent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/api/apitest"
)

// reports sends a memory report for the calling process as a user, and returns the status and body of the answer. The
// emulated /proc shows the process in the given cgroup.
func (w *world) reports(socket string, uid uint32, job uint32, cgroup, body string) (int, string) {
	w.t.Helper()
	dir := filepath.Join(w.procs.Proc, strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::"+cgroup+"\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	request := "POST /v1/jobs/" + strconv.Itoa(int(job)) + "/memory HTTP/1.1\r\nHost: caelumd\r\n" +
		"Connection: close\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	raw, err := apitest.Send(socket, uid, []byte(request))
	if err != nil {
		w.t.Fatal(err)
	}
	answers, err := apitest.Answers(raw)
	if err != nil || len(answers) != 1 {
		w.t.Fatalf("%v %q", err, raw)
	}
	return answers[0].Code, string(answers[0].Body)
}

// TestMemoryReport checks which processes may report the memory of a job: only processes of the job's user, and only
// processes of the job if Slurm puts jobs into cgroups. Reports for other jobs and slices must not count as evidence
// that a job ran out of memory.
func TestMemoryReport(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to connect as another user")
	}
	w := newWorld(t, 1)
	var ids [2]uint32
	for k := range ids {
		ids[k] = w.submit(job(1, "1g.5gb:1"))
		w.publish()
		w.fake.Tick()
		w.prologs.Wait()
	}
	id := ids[0]
	lease := w.lease(id)
	socket := w.socket()
	const oom = `{"ooms":1}`
	const missing, forbidden, bad = http.StatusNotFound, http.StatusForbidden, http.StatusBadRequest
	const elsewhere = "/system.slice/slurmstepd.scope/job_999/step_0"
	within := "/system.slice/slurmstepd.scope/job_" + strconv.Itoa(int(id)) + "/step_0/user/task_0"
	for name, c := range map[string]struct {
		uid          uint32
		job          uint32
		cgroup, body string
		code         int
		text         string
	}{
		"another user":             {lease.UID + 1, id, within, oom, missing, "holds no slice on this node"},
		"root":                     {0, id, within, oom, missing, "holds no slice on this node"},
		"a job that does not run":  {lease.UID, 4000, within, oom, missing, "holds no slice on this node"},
		"another job of the user":  {lease.UID, id, elsewhere, oom, forbidden, "of job 999"},
		"a slice of another job":   {lease.UID, id, within, `{"uuid":"MIG-1","ooms":1}`, bad, "no slice with"},
		"the other job's cgroup":   {lease.UID, ids[1], within, oom, forbidden, fmt.Sprint("of job ", id)},
		"no iteration can be that": {lease.UID, id, within, `{"iteration":-1}`, bad, "iteration"},
	} {
		code, text := w.reports(socket, c.uid, c.job, c.cgroup, c.body)
		if code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if w.agent.usage.OutOfMemory(id) || w.agent.usage.OutOfMemory(ids[1]) {
		t.Error("a rejected report counts")
	}
	if code, text := w.reports(socket, lease.UID, id, within, oom); code != http.StatusOK {
		t.Errorf("a report of the job: %d %s", code, text)
	}
	if !w.agent.usage.OutOfMemory(id) || w.agent.usage.OutOfMemory(ids[1]) {
		t.Error("the report of the job does not count, or counts for another job")
	}
	if code, _ := w.reports(socket, lease.UID, id, within, oom); code != http.StatusTooManyRequests {
		t.Errorf("a second report in the same second: %d", code)
	}
	// A process whose cgroup cannot be read has ended.
	err := w.agent.ReportMemory(t.Context(), id, 1<<22, api.MemoryReport{})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != http.StatusNotFound { // the context has no peer
		t.Errorf("without a peer: %v", err)
	}
}

// socket serves the agent's socket to all users, and returns its path.
func (w *world) socket() string {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "agent") // other users have no access to a directory of t.TempDir
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	var l net.Listener
	if l, err = api.Listen(dir, nil); err != nil {
		w.t.Fatal(err)
	}
	server := api.NewServer(w.agent)
	go server.Serve(l)
	w.t.Cleanup(func() { server.Close() })
	return filepath.Join(dir, api.SocketName)
}
