package sqlite

import (
	"os"
	"syscall"
	"testing"
)

// TestExplainFileOwner checks that no remedy describes root as the owner of a file that belongs to another user. For
// example, the watcher's repository belongs to SlurmUser, and a repository that `caelum repo` created belongs to the
// user of that command.
func TestExplainFileOwner(t *testing.T) {
	k := Kind{Name: "repository"}
	denied := map[syscall.Errno]bool{syscall.EACCES: true, syscall.EPERM: true, syscall.ENOENT: false}
	for reason, owner := range denied {
		text := k.ExplainFile("/r.db", &os.PathError{Op: "open", Path: "/r.db", Err: reason}).Error()
		want := "repository /r.db: " + reason.Error() + "; check that its directory exists and is writable, " +
			"and that it is a regular file"
		if owner {
			want += " (only root and the owner of the repository can open it)"
		}
		if text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
