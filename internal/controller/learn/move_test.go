package learn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const someone = 20001

// places returns the path of a table in a directory of root, and a state directory of another user.
func places(t *testing.T) (table, state string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	table, state = filepath.Join(dir, "etc", "decisions"), filepath.Join(dir, "state")
	for _, d := range []string{filepath.Dir(table), state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(state, someone, someone); err != nil {
		t.Fatal(err)
	}
	return table, state
}

func anyone(uint32) error { return nil }

const simple = "caelum-decisions 1 7\npartition gpu\nprofile 1g.5gb\ndefault 1g.5gb\n"

// TestMoveTable moves a table, and then one that an administrator has put in the place of the link.
func TestMoveTable(t *testing.T) {
	table, state := places(t)
	for k, text := range []string{simple, strings.Replace(simple, " 7", " 8", 1)} {
		os.Remove(table)
		if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		to, err := MoveTable(table, state, anyone)
		if err != nil || to != filepath.Join(state, "decisions") {
			t.Fatalf("%q, %v", to, err)
		}
		link, _ := os.Readlink(table)
		info, err := os.Stat(table)
		if err != nil || link != to || info.Mode() != 0o644 || info.Sys().(*syscall.Stat_t).Uid != someone {
			t.Errorf("%s is a link to %q: %v, %v", table, link, info, err)
		}
		if got, err := os.ReadFile(table); string(got) != text {
			t.Errorf("the table is %q, %v", got, err)
		}
		old, _ := os.ReadFile(to + ".old")
		if want := []string{"", simple}[k]; string(old) != want {
			t.Errorf("the old table is %q, want %q", old, want)
		}
		if to, err := MoveTable(table, state, anyone); to != "" || err != nil {
			t.Errorf("moved again: %q, %v", to, err)
		}
	}
}

// TestMoveTableFollowsNoLink checks that links of the state directory's owner do not make root write elsewhere.
func TestMoveTableFollowsNoLink(t *testing.T) {
	table, state := places(t)
	victim := filepath.Join(filepath.Dir(table), "victim")
	for path, text := range map[string]string{table: simple, victim: "keep"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"decisions", "decisions.old"} {
		if err := os.Symlink(victim, filepath.Join(state, name)); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := MoveTable(table, state, anyone); err != nil || to == "" {
		t.Fatalf("%q, %v", to, err)
	}
	info, err := os.Stat(victim)
	if text, _ := os.ReadFile(victim); err != nil || string(text) != "keep" ||
		info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the file behind the link: %q, %v, %v", text, info, err)
	}
}

// TestMoveTableChangesNothing checks the cases in which the watcher can write the table, or there is none.
func TestMoveTableChangesNothing(t *testing.T) {
	table, state := places(t)
	if to, err := MoveTable(table, state, anyone); to != "" || err != nil {
		t.Errorf("without a table: %q, %v", to, err)
	}
	if err := os.WriteFile(table, []byte(simple), 0o644); err != nil {
		t.Fatal(err)
	}
	refuse := func(uint32) error { return errors.New("not SlurmUser") }
	if to, err := MoveTable(table, state, refuse); to != "" || err == nil {
		t.Errorf("for another user than SlurmUser: %q, %v", to, err)
	}
	if err := os.Chown(state, 0, 0); err != nil {
		t.Fatal(err)
	}
	if to, err := MoveTable(table, state, anyone); to != "" || err != nil {
		t.Errorf("with a state directory of root: %q, %v", to, err)
	}
	if err := os.Chown(state, someone, someone); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(table), 0o777); err != nil {
		t.Fatal(err)
	}
	if to, err := MoveTable(table, state, anyone); to != "" || err == nil {
		t.Errorf("in a directory that everyone can change: %q, %v", to, err)
	}
	if info, err := os.Lstat(table); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the table is %v, %v", info, err)
	}
}
