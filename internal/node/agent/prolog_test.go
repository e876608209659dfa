package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/node/api"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// The tests in this file check that a prolog fails only because of a defect of the node. Each test covers one class of
// errors (docs/internals/failures.md, "Error classes").

// failing makes the fake slurmctld return err for the first calls whose kind is in ops.
func (w *world) failing(times int, err error, ops ...string) {
	w.fake.Before(func(c slurmtest.Call) error {
		for _, op := range ops {
			if c.Op == op && times > 0 {
				times--
				return err
			}
		}
		return nil
	})
}

var errUnclear = errors.New("scontrol shows the allocation on 1 nodes, but squeue shows it on 2")

func TestUnclearRecordIsReadAgain(t *testing.T) {
	for _, err := range []error{errUnclear, slurm.ErrChanging} {
		w := newWorld(t, 1)
		w.agent.recordPause = time.Microsecond
		id, req := w.startedOnly("2g.10gb:1")
		w.failing(recordTries-1, err, "Job")
		if l, err := w.agent.Lease(context.Background(), id, req); err != nil || len(l.Slices) != 1 {
			t.Errorf("%+v, %v", l, err)
		}
	}
}

// TestUnclearRecordIsRefused checks that the agent refuses a job whose record remains unclear. The node must continue
// to publish and to serve other jobs.
func TestUnclearRecordIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.agent.recordPause = time.Microsecond
	id, req := w.startedOnly("2g.10gb:1")
	w.fake.Before(func(c slurmtest.Call) error {
		if c.Op == "Job" && c.Job == id {
			return errUnclear
		}
		return nil
	})
	w.publish()
	if n := w.offers()["7g.40gb"]; n != 0 {
		t.Errorf("%d of 7g.40gb on offer alongside a job that was given a 2g.10gb", n)
	}
	l, err := w.agent.Lease(context.Background(), id, req)
	if err != nil || !strings.Contains(l.Error, "inconsistent") || !strings.Contains(l.Error, errUnclear.Error()) {
		t.Fatalf("%+v, %v", l, err)
	}
	other := w.startNow("1g.5gb:1")
	if l, err := w.agent.Lease(context.Background(), other, req); err != nil || len(l.Slices) != 1 {
		t.Errorf("another job: %+v, %v", l, err)
	}
}

// TestJobThatLeftTheNode checks a job whose user removed this node from the job while the job was starting.
func TestJobThatLeftTheNode(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	w.agent.ctl = elsewhere{w.fake}
	if l, err := w.agent.Lease(context.Background(), id, req); err != nil ||
		!strings.Contains(l.Error, "no longer on n1") {
		t.Errorf("%+v, %v", l, err)
	}
}

type elsewhere struct{ *slurmtest.Fake }

func (e elsewhere) Job(ctx context.Context, id uint32) (slurm.Job, error) {
	j, err := e.Fake.Job(ctx, id)
	j.Nodes, j.Allocated = []string{"n2"}, map[string]slurm.GRESList{"n2": j.Allocated["n1"]}
	return j, err
}

// TestSlurmctldStaysAway checks that the prolog repeats its call until its time limit while slurmctld does not answer.
func TestSlurmctldStaysAway(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	w.fake.Before(func(slurmtest.Call) error { return slurm.ErrUnreachable })
	for _, wait := range []float64{0, 3600, -1, 1e300} {
		req.Wait = wait
		if _, err := w.agent.Lease(context.Background(), id, req); api.CodeOf(err) != 503 {
			t.Fatalf("with %g s left: %v", wait, err)
		}
	}
	req.Wait = 1e-9
	l, err := w.agent.Lease(context.Background(), id, req)
	if err != nil || !strings.Contains(l.Error, "n1 could not serve the job in time: slurmctld cannot be reached") {
		t.Fatalf("%+v, %v", l, err)
	}
	w.fake.Before(nil)
	if err := w.fake.End(id); err != nil {
		t.Fatal(err)
	}
	w.nothingHeld()
}

// TestPublishingImpossible checks that the agent requeues or refuses a job if only its own writes to the node record
// fail.
func TestPublishingImpossible(t *testing.T) {
	for name, tc := range map[string]struct {
		requeue bool
		says    string
	}{"batch": {true, "the job was requeued"}, "--no-requeue": {false, "submit the job again"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, tightest)
			w.fake.Prolog(nil)
			j := job(1, "2g.10gb:1")
			j.Requeue = tc.requeue
			id := w.submit(j)
			w.publish()
			w.fake.Tick()
			w.agent.node.Lock()
			w.agent.node.Pending, w.agent.node.Offers = map[uint32]*state.PendingLease{}, make([]mig.Layout, 1)
			w.agent.node.Unlock()
			w.failing(1000, errors.New("Invalid user id"), "UpdateNode")
			req := api.LeaseRequest{Slots: []int{0}, Wait: 1e-9}
			l, err := w.agent.Lease(context.Background(), id, req)
			if err != nil || len(l.Slices) > 0 || !strings.Contains(l.Error, tc.says) {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

// TestDefectFailsTheProlog checks that the prolog fails on a node where Slurm's commands do not run or lease files
// cannot be written.
func TestDefectFailsTheProlog(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	req.Wait = 1e-9
	w.failing(1, slurm.ErrCommand, "Job")
	if _, err := w.agent.Lease(context.Background(), id, req); api.CodeOf(err) != 500 {
		t.Errorf("%v", err)
	}
}

// TestGivenUpAfterGrant checks a lease whose lease file cannot be written. The agent must release the lease completely
// before it refuses the job, because the job's user must not keep the slice.
func TestGivenUpAfterGrant(t *testing.T) {
	w := newWorld(t, 1)
	id, req := w.startedOnly("2g.10gb:1")
	if l, err := w.agent.Lease(context.Background(), id, req); err != nil || len(l.Slices) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	w.agent.slurmMu.Lock()
	w.agent.slurm = nil // emulates a restart
	w.agent.slurmMu.Unlock()
	w.fake.Before(func(slurmtest.Call) error { return slurm.ErrUnreachable })
	req.Wait = 1e-9
	l, err := w.agent.Lease(context.Background(), id, req)
	if err != nil || l.Error == "" {
		t.Fatalf("%+v, %v", l, err)
	}
	if open := w.openTo(req.UID); len(open) > 0 {
		t.Errorf("the job's user can still open %v", open)
	}
}

// openTo returns the capability files that belong to a user.
func (w *world) openTo(uid uint32) (files []string) {
	w.t.Helper()
	all, err := filepath.Glob(filepath.Join(w.node.Dev, "nvidia-caps", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, file := range all {
		if info, err := os.Stat(file); err == nil && info.Sys().(*syscall.Stat_t).Uid == uid {
			files = append(files, file)
		}
	}
	return files
}
