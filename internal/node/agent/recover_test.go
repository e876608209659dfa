package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/tags"
	"caelum/internal/node/api"
)

func (w *world) ledgerFile() string { return filepath.Join(w.cfg.StateDir, "ledger.db") }

// removeLedger removes the database and its -wal and -shm files.
func (w *world) removeLedger() {
	w.t.Helper()
	files, _ := filepath.Glob(w.ledgerFile() + "*")
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestLostLedger checks that an agent whose ledger was lost restores the leases of running jobs from their lease files.
// The jobs must keep their slices, no others may get them, and the jobs' epilogs must release them.
func TestLostLedger(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"removed": (*world).removeLedger,
		"emptied": func(w *world) {
			w.removeLedger()
			if err := os.WriteFile(w.ledgerFile(), nil, 0o600); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { testLostLedger(t, lose) })
	}
}

func testLostLedger(t *testing.T, lose func(*world)) {
	w := newWorld(t, 1)
	gone := w.submit(job(1, "1g.5gb:1"))
	two := w.submit(job(2, "1g.5gb:1 2g.10gb:1"))
	w.publish()
	w.fake.Tick()
	idle := w.lease(gone).Slices[0]
	before := w.lease(two)
	if err := w.fake.Finish(gone); err != nil {
		t.Fatal(err)
	}
	w.stop()
	file := w.leaseFile(two)
	lose(w)
	w.start()
	w.publish()

	after, err := w.agent.Job(context.Background(), two)
	if err != nil || !reflect.DeepEqual(spotsOf(*after), spotsOf(before)) || after.UID != before.UID ||
		after.Restart != before.Restart {
		t.Fatalf("held %+v, holds %+v, %v", before, after, err)
	}
	if w.leaseFile(two) != file {
		t.Error("the lease file was changed")
	}
	status, _ := w.agent.Status(context.Background())
	states := map[string]string{}
	for _, in := range status.GPUs[0].Instances {
		states[in.UUID] = in.State
	}
	want := map[string]string{
		idle.UUID:             "foreign",
		before.Slices[0].UUID: "leased",
		before.Slices[1].UUID: "leased",
	}
	if !reflect.DeepEqual(states, want) {
		t.Errorf("instances are %v, want %v", states, want)
	}
	if o := w.offers(); o["7g.40gb"]+o["4g.20gb"] > 0 {
		t.Errorf("on offer: %v, although jobs run", o)
	}
	if n := strings.Count(w.log.String(), "the ledger had lost this job's lease"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	// The next agent has the same lease.
	w.stop()
	w.start()
	if again, err := w.agent.Job(context.Background(), two); err != nil ||
		!reflect.DeepEqual(spotsOf(*again), spotsOf(before)) {
		t.Errorf("the next agent has %+v, %v", again, err)
	}
	if err := w.fake.Finish(two); err != nil {
		t.Fatal(err)
	}
	status, _ = w.agent.Status(context.Background())
	if len(status.Leases) != 0 {
		t.Errorf("left: %+v", status.Leases)
	}
}

// spotsOf returns the slices of a lease in a comparable form.
func spotsOf(l api.Lease) (all []string) {
	for _, s := range l.Slices {
		all = append(all, fmt.Sprint(s.Slot, s.GPU, s.Profile, s.Start, s.Size, s.MemoryMiB, s.UUID))
	}
	return all
}

// TestOldLedger checks a ledger that is too old, for example because SQLite dropped the end of a damaged journal. If
// a lease file names an instance that, according to the ledger, is idle or leased to another job, it belongs to the
// lease file's job.
func TestOldLedger(t *testing.T) {
	for name, between := range map[string]func(*world) (old uint32){
		"from before any job": func(*world) uint32 { return 0 },
		"from when the slice was idle": func(w *world) uint32 {
			id := w.startNow("3g.20gb:1")
			w.lease(id)
			if err := w.fake.Finish(id); err != nil {
				w.t.Fatal(err)
			}
			return 0
		},
		"from when another job held the slice": func(w *world) uint32 {
			id := w.startNow("3g.20gb:1")
			w.lease(id)
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.publish()
			old := between(w)
			w.stop()
			saved, err := os.ReadFile(w.ledgerFile())
			if err != nil {
				t.Fatal(err)
			}
			w.start()
			if old != 0 {
				if err := w.fake.Finish(old); err != nil {
					t.Fatal(err)
				}
			}
			id := w.startNow("3g.20gb:1")
			before := w.lease(id)
			w.stop()
			w.removeLedger()
			if err := os.WriteFile(w.ledgerFile(), saved, 0o600); err != nil {
				t.Fatal(err)
			}
			w.start()
			w.publish()
			status, _ := w.agent.Status(context.Background())
			if len(status.Leases) != 1 || !reflect.DeepEqual(spotsOf(status.Leases[0]), spotsOf(before)) {
				t.Errorf("held %+v, now there are %+v", before, status.Leases)
			}
			if other := w.granted("3g.20gb"); other.Start == before.Slices[0].Start {
				t.Errorf("the next job got %+v, which job %d holds", other, id)
			}
		})
	}
}

// granted starts a job that requests one slice of a profile, and returns its slice.
func (w *world) granted(profile string) api.Slice {
	w.t.Helper()
	id := w.startNow(profile + ":1")
	l := w.lease(id)
	if len(l.Slices) != 1 {
		w.t.Fatalf("a job that wants %s got %+v", profile, l)
	}
	return l.Slices[0]
}

// startError starts an agent and returns its error. An agent that starts without an error is stopped.
func (w *world) startError() error {
	log := logrus.New()
	log.SetOutput(&w.log)
	a, err := w.newAgent(log)
	if err == nil {
		a.ledger.Close()
	}
	return err
}

// TestContradictingLeaseFiles checks that the agent does not start if two lease files name the same slice.
func TestContradictingLeaseFiles(t *testing.T) {
	testContradictingLeaseFiles(t, newWorld(t, 1), "3g.20gb:1")
}

// TestContradictingFractions is like TestContradictingLeaseFiles, but with a fraction.
func TestContradictingFractions(t *testing.T) {
	testContradictingLeaseFiles(t, newFractional(t, 1).world, "1f.11gb:1")
}

func testContradictingLeaseFiles(t *testing.T, w *world, slice string) {
	id := w.startNow(slice)
	w.lease(id)
	forged := strings.Replace(w.leaseFile(id), fmt.Sprintf("job %d\n", id), "job 4711\n", 1)
	w.stop()
	path := filepath.Join(w.cfg.RunDir, "jobs", "4711")
	if err := os.WriteFile(path, []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.startError(); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("jobs %d and 4711 name the same slice", id)) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := w.agent.Job(context.Background(), id); err != nil {
		t.Errorf("after the remedy: %v", err)
	}
}

// TestOddLeaseFiles checks that the agent logs the path of a file that is not a valid lease file, and neither uses nor
// removes it.
func TestOddLeaseFiles(t *testing.T) {
	w := newWorld(t, 1)
	w.stop()
	dir := filepath.Join(w.cfg.RunDir, "jobs")
	const head = "caelum-lease 1\njob 21\nrestart 0\nuid 0\nindex absolute\n"
	for name, text := range map[string]string{
		"20": "", "21": head + "slot 0 MIG-", "22": head + "slot 0 MIG-1\nend\n", "23": "garbage\nend\n",
		"24":     strings.Replace(head, "21", "99999999999", 1) + "slot 0 -\nend\n",
		".new-1": head, "notes": "mine",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "25")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "26"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.publish()
	if status, _ := w.agent.Status(context.Background()); len(status.Leases) != 0 {
		t.Errorf("%+v", status.Leases)
	}
	for _, id := range []string{"20", "21", "22", "23", "24", "25", "26"} {
		if !strings.Contains(w.log.String(), "job "+id+" is not running on this node, remove "+
			filepath.Join(dir, id)) {
			t.Errorf("%s is not in the log:\n%s", id, w.log.String())
		}
		if _, err := os.Lstat(filepath.Join(dir, id)); err != nil {
			t.Error(err)
		}
	}
	w.granted("7g.40gb")
}

// TestRecoveredLeaseIsCompleted loses the ledger while a job runs that can grow. The restored lease must have what the
// lost one had, whether the agent reads the job's record before or only during the epilog, and the job must grow.
func TestRecoveredLeaseIsCompleted(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("before the epilog: %v", early), func(t *testing.T) {
			ctx := context.Background()
			g := newGrowing(t, "22.05.8")
			j := growingJob("1g.5gb", "oom")
			j.Account, j.TimeLimit = "physics", time.Hour
			j.AdminComment += " " + tags.Key + "k1 " + tags.Fingerprint + "w1 " + tags.RunTime + "600"
			id := g.submit(j)
			g.publish()
			g.fake.Tick()
			before := g.lease(id)
			if before.Key != "k1" || before.Expected != 600 || before.End == 0 {
				t.Fatalf("before: %+v", before)
			}
			g.stop()
			g.removeLedger()
			g.restart()
			g.publish()
			if early {
				g.fake.Before(down("Job"))
				if err := g.agent.completeLeases(ctx); err == nil {
					t.Error("no error, although slurmctld did not answer")
				}
				g.fake.Before(nil)
				if err := g.agent.completeLeases(ctx); err != nil {
					t.Fatal(err)
				}
				g.restart() // the ledger has the completed lease
				after, err := g.agent.Job(ctx, id)
				if err != nil {
					t.Fatal(err)
				}
				after.Since, after.User = before.Since, before.User // the file's time and the user's name on this host
				if !reflect.DeepEqual(*after, before) {
					t.Errorf("before: %+v\nafter: %+v", before, *after)
				}
			}
			if j := g.fails(id, 4700); j.State != "PENDING" || !tags.Has(j.AdminComment, tags.Held) {
				t.Errorf("after the failure, the job is %s with %q", j.State, j.AdminComment)
			}
		})
	}
}
