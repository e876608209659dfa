package sqlite

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"
)

// TestExplainFileOwner checks that no remedy names root as the owner of another user's file. For example, the
// watcher's repository belongs to SlurmUser, and a repository created by `caelum repo` belongs to the user who ran
// the command.
func TestExplainFileOwner(t *testing.T) {
	k := Kind{Name: "repository"}
	denied := map[syscall.Errno]bool{syscall.EACCES: true, syscall.EPERM: true, syscall.ENOENT: false}
	for reason, owner := range denied {
		text := k.ExplainFile("/r.db", &os.PathError{Op: "open", Path: "/r.db", Err: reason}).Error()
		want := "repository /r.db: " + reason.Error() + "; check that the parent directory exists and is writable, " +
			"and that the file is a regular file"
		if owner {
			want += " (only root and the owner of the repository can open the file)"
		}
		if text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// TestExplainUnreadable checks that a disk that does not return the file is not reported as a damaged file. A read of
// /proc/self/mem at offset 0 fails with EIO.
func TestExplainUnreadable(t *testing.T) {
	corrupt := sqlite3.Error{Code: sqlite3.ErrCorrupt}
	err := Kind{Name: "ledger", Damaged: "move"}.Explain("/proc/self/mem", corrupt)
	if errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "dmesg") {
		t.Errorf("a disk error: %v", err)
	}
	if err := (Kind{Name: "ledger", Damaged: "move"}).Explain("/dev/null", corrupt); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged file: %v", err)
	}
}
