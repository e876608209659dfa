package api

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a handler that records the calls. Its Lease method first returns the errors in failing, one per call, and
// then grants leases.
type fake struct {
	failing  []error
	asked    []LeaseRequest
	released []int
	peer     uint32
}

func (f *fake) Lease(ctx context.Context, job uint32, r LeaseRequest) (*Lease, error) {
	f.asked = append(f.asked, r)
	f.peer = Peer(ctx)
	if len(f.failing) > 0 {
		err := f.failing[0]
		f.failing = f.failing[1:]
		return nil, err
	}
	return &Lease{Job: job, Restart: r.Restart, Slots: r.Slots}, nil
}

func (f *fake) Release(_ context.Context, _ uint32, restart int) error {
	f.released = append(f.released, restart)
	return nil
}

func (f *fake) Job(_ context.Context, job uint32) (*Lease, error) {
	return nil, NotFound("no lease for this job")
}

func (f *fake) Status(context.Context) (*Status, error) { return &Status{Node: "n1"}, nil }

func serve(t *testing.T, f *fake) string {
	t.Helper()
	dir := t.TempDir()
	start(t, f, dir)
	return dir
}

func start(t *testing.T, f *fake, dir string) {
	t.Helper()
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(f)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

func TestCallsReachTheHandler(t *testing.T) {
	f := &fake{}
	c := NewClient(serve(t, f))
	ctx := context.Background()
	want := LeaseRequest{Restart: 2, UID: 1001, GID: 1002, Partition: "gpu", Slots: []int{0, 3}, MIG: "1g.5gb",
		SLUID: "sEKNKTV3WPV500"}
	lease, err := c.Lease(ctx, 12, want)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Job != 12 || lease.Restart != 2 || !reflect.DeepEqual(f.asked, []LeaseRequest{want}) {
		t.Errorf("lease %+v, requests %+v", lease, f.asked)
	}
	if f.peer != uint32(os.Getuid()) {
		t.Errorf("peer %d, want %d", f.peer, os.Getuid())
	}
	if err := c.Release(ctx, 12, 2); err != nil || !reflect.DeepEqual(f.released, []int{2}) {
		t.Errorf("release: %v, released %v", err, f.released)
	}
	if s, err := c.Status(ctx); err != nil || s.Node != "n1" {
		t.Errorf("status: %+v, %v", s, err)
	}
	var e *Error
	if _, err := c.Job(ctx, 12); !errors.As(err, &e) || e.Code != http.StatusNotFound ||
		e.Message != "no lease for this job" {
		t.Errorf("job: %v", err)
	}
}

func TestRetryRepeatsOnlyTemporaryErrors(t *testing.T) {
	f := &fake{failing: []error{NotNow("slurmctld is down"), NotNow("slurmctld is down")}}
	c := NewClient(serve(t, f))
	lease := func(ctx context.Context) error { _, err := c.Lease(ctx, 1, LeaseRequest{Slots: []int{0}}); return err }
	if err := Retry(context.Background(), lease); err != nil || len(f.asked) != 3 {
		t.Errorf("after two answers with status 503: %v, %d calls", err, len(f.asked))
	}
	f.failing = []error{errors.New("GPU 0 fell off the bus")}
	f.asked = nil
	var e *Error
	if err := Retry(context.Background(), lease); !errors.As(err, &e) || e.Code != 500 || len(f.asked) != 1 {
		t.Errorf("after an answer with status 500: %v, %d calls", err, len(f.asked))
	}
}

func TestRetryReturnsTheReasonAtTheDeadline(t *testing.T) {
	c := NewClient(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Retry(ctx, func(ctx context.Context) error { return c.Release(ctx, 1, 0) })
		if err == nil || Reason(err) != "no such socket" {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetryFindsAnAgentThatStartsLater(t *testing.T) {
	dir := t.TempDir()
	c := NewClient(dir)
	f := &fake{}
	tries := 0
	err := Retry(context.Background(), func(ctx context.Context) error {
		if tries++; tries == 2 {
			start(t, f, dir)
		}
		return c.Release(ctx, 1, 0)
	})
	if err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

func TestListenReplacesADeadSocketButNotALiveOne(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, &fake{}, dir)
	if _, err := Listen(dir, nil); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent: %v", err)
	}
}

// TestOnlyRootChangesLeases starts a child process as another user, and checks that this user may read the status but
// not change leases.
func TestOnlyRootChangesLeases(t *testing.T) {
	if socket := os.Getenv("CAELUM_TEST_DIR"); socket != "" {
		c := NewClient(socket)
		_, read := c.Status(context.Background())
		_, write := c.Lease(context.Background(), 1, LeaseRequest{})
		release := c.Release(context.Background(), 1, 0)
		var w, r *Error
		if read != nil || !errors.As(write, &w) || w.Code != 403 || !errors.As(release, &r) || r.Code != 403 {
			t.Fatalf("status %v, lease %v, release %v", read, write, release)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	start(t, &fake{}, dir)
	bin := filepath.Join(dir, "child")
	self, _ := os.Executable()
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(bin, text, 0o755)
	cmd := exec.Command(bin, "-test.run=^TestOnlyRootChangesLeases$")
	cmd.Dir = dir
	cmd.Env = []string{"CAELUM_TEST_DIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}
