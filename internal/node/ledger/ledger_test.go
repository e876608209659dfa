package ledger

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"caelum/internal/node/api"
)

func open(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestLifeOfASlice creates, leases, releases and destroys a slice. After each step, it reads the state through a
// second connection, because no state may exist only in memory.
func TestLifeOfASlice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	l := open(t, path)
	reread := func() ([]Intent, []Instance, []api.Lease) {
		t.Helper()
		other := open(t, path)
		intents, err1 := other.Intents()
		instances, err2 := other.Instances()
		leases, err3 := other.Leases()
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		return intents, instances, leases
	}
	want := func(intents, instances, leases int, job uint32) {
		t.Helper()
		a, b, c := reread()
		if len(a) != intents || len(b) != instances || len(c) != leases {
			t.Fatalf("intents %v, instances %v, leases %v", a, b, c)
		}
		if len(b) > 0 && b[0].Job != job {
			t.Fatalf("job %d holds the instance, want job %d", b[0].Job, job)
		}
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	id, err := l.Begin(Intent{Op: OpCreate, GPU: "GPU-0", Profile: "2g.10gb", Start: 2, Size: 2, Job: 7})
	ok(err)
	want(1, 0, 0, 0)
	in := Instance{GPU: "GPU-0", GI: 4, Profile: "2g.10gb", Start: 2, Size: 2, UUID: "MIG-1"}
	ok(l.Created(id, in))
	want(0, 1, 0, 0)
	lease := api.Lease{
		Job:     7,
		Restart: 1,
		Slots:   []int{3},
		Slices:  []api.Slice{{Slot: 3, Profile: "2g.10gb", Start: 2, UUID: "MIG-1"}},
	}
	ok(l.Grant(lease, []Instance{in}))
	want(0, 1, 1, 7)
	if _, _, leases := reread(); !reflect.DeepEqual(leases[0], lease) {
		t.Fatalf("the ledger contains the lease %+v, want %+v", leases[0], lease)
	}
	ok(l.Release(7))
	want(0, 1, 0, 0)
	ok(l.SetStuck("GPU-0", 4, true))
	if _, instances, _ := reread(); !instances[0].Stuck {
		t.Fatal("the ledger does not record the instance as stuck")
	}
	id, err = l.Begin(Intent{Op: OpDestroy, GPU: "GPU-0", GI: 4})
	ok(err)
	want(1, 1, 0, 0)
	ok(l.Destroyed(id, "GPU-0", 4))
	want(0, 0, 0, 0)
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	open(t, path)
	for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", filepath.Base(p), info.Mode().Perm(), mode)
		}
	}
}

// TestSizeOnDisk checks that the ledger and its -wal file stay below 512 KiB after many writes, because a node may have
// a small disk.
func TestSizeOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	for range 1000 {
		id, err := l.Begin(Intent{Op: OpCreate, GPU: "GPU-0", Profile: "2g.10gb", Start: 2, Size: 2, Job: 7})
		if err == nil {
			err = l.Failed(id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{path, path + "-wal"} {
		if info, err := os.Stat(file); err != nil || info.Size() > 512<<10 {
			t.Errorf("%s: %v bytes, %v", filepath.Base(file), info.Size(), err)
		}
	}
}
