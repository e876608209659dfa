package sqlite

import (
	"os"
	"syscall"
	"testing"
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
