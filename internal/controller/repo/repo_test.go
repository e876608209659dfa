package repo

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"caelum/internal/core/predict"
)

func open(t *testing.T, path string) *Repo {
	t.Helper()
	r, err := Open(path, func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func fresh(t *testing.T) *Repo { return open(t, filepath.Join(t.TempDir(), "repo.db")) }

// aRun returns a complete run of job 7, which belongs to user1.
func aRun() predict.Run {
	return predict.Run{
		Job: 7, Node: "n1", Key: "0123456789abcdef", Fingerprint: "fedcba9876543210",
		UID: 1001, User: "user1", Account: "research", Name: "train",
		GPUType: "a100", Profile: "2g.10gb", Slices: 1, Start: 1795339216, Seconds: 3590,
		Samples: 3589, PeakMiB: 5321, MedianMiB: 4800, HighMiB: 5100, Util: 0.37, Processes: 2,
		State: "COMPLETED",
	}
}

func add1(t *testing.T, r *Repo, runs ...predict.Run) int {
	t.Helper()
	n, err := r.Add(runs...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func job(t *testing.T, r *Repo, id uint32) []predict.Run {
	t.Helper()
	runs, err := r.Job(id)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// TestMigratesKeys migrates a repository from version 2, in which the index of the runs had only the key, to version
// 3, in which it has the key and the user. A key that was forgotten before the migration must remain forgotten.
func TestMigratesKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	values := func(id, uid int) string {
		return fmt.Sprintf(
			`(%d, 0, 'n1', 1795339216, '0123456789abcdef', 'fedcba9876543210', %d, 'user', 'research', 'train',
			'a100', '2g.10gb', 1, 3590, 3589, 5321, 4800, 5100, 0.37, 'COMPLETED', 0, 1)`,
			id,
			uid,
		)
	}
	edit(
		t,
		path,
		schema[0]+schema[1]+`; PRAGMA user_version = 2; INSERT INTO run VALUES `+values(7, 1001)+","+values(8, 1002)+`;
		INSERT INTO forgotten VALUES ('1111111111111111', -1, 1795339217)`,
	)
	r := open(t, path)
	for uid, id := range map[uint32]uint32{1001: 7, 1002: 8} {
		if h, err := r.ByKey(uid, "0123456789abcdef"); err != nil || len(h.Runs) != 1 || h.Runs[0].Job != id {
			t.Errorf("user %d: %+v, %v", uid, h.Runs, err)
		}
	}
	n := aRun()
	n.Job, n.Key = 9, "1111111111111111"
	if add1(t, r, n) != 0 {
		t.Error("Add stored a run of a forgotten key")
	}
}

// TestMigrates checks that an earlier release's repository still has its runs after the migration.
func TestMigrates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	edit(t, path, schema[0]+`; PRAGMA user_version = 1;
		INSERT INTO run VALUES (7, 0, 'n1', 1795339216, '0123456789abcdef', 'fedcba9876543210', 1001, 'user1',
		'research', 'train', 'a100', '2g.10gb', 1, 3590, 3589, 5321, 4800, 5100, 0.37, 'COMPLETED', 0)`)
	r := open(t, path)
	want := aRun()
	want.Processes = 0
	if got := job(t, r, 7); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v", got)
	}
	if add1(t, r, aRun()) != 0 {
		t.Error("Add stored the same run a second time")
	}
	if got := job(t, r, 7); !reflect.DeepEqual(got[0], aRun()) {
		t.Errorf("after Add completed the run: %+v", got)
	}
}
