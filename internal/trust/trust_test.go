package trust

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const eve = 20001 // an ordinary user

// paths lists changes to a directory tree with etc/caelum.yaml.
var paths = []struct {
	name   string
	spoil  func(dir string)
	owners []int
	why    string // a part of the expected error, or empty if the path is accepted
}{
	{name: "as installed", spoil: func(string) {}},
	{name: "file of a user", spoil: func(d string) { chown(d+"/etc/caelum.yaml", eve) },
		why: "etc/caelum.yaml belongs to uid 20001, not to root; chown root "},
	{name: "file of the given owner", spoil: func(d string) { chown(d+"/etc/caelum.yaml", eve) },
		owners: []int{eve}},
	{name: "file of a user other than the owner", spoil: func(d string) { chown(d+"/etc/caelum.yaml", eve+1) },
		owners: []int{eve}, why: "belongs to uid 20002, not to root or uid 20001"},
	{name: "file writable by group", spoil: func(d string) { chmod(d+"/etc/caelum.yaml", 0o664) },
		why: "etc/caelum.yaml is writable by group; chmod g-w "},
	{name: "file writable by others", spoil: func(d string) { chmod(d+"/etc/caelum.yaml", 0o646) },
		why: "is writable by others; chmod o-w "},
	{name: "file writable by all", spoil: func(d string) { chmod(d+"/etc/caelum.yaml", 0o666) },
		why: "is writable by group and others; chmod go-w "},
	{name: "directory of a user", spoil: func(d string) { chown(d+"/etc", eve) }, why: "/etc belongs to uid 20001"},
	{name: "directory writable by group", spoil: func(d string) { chmod(d+"/etc", 0o775) },
		why: "/etc is writable by group; chmod g-w "},
	{name: "directory above writable by others", spoil: func(d string) { chmod(d, 0o777) },
		why: "is writable by group and others"},
	{name: "sticky directory above", spoil: func(d string) { chmod(d, os.ModeSticky|0o777) }},
	{name: "sticky directory above, of a user", spoil: func(d string) {
		chmod(d, os.ModeSticky|0o777)
		chown(d, eve)
	}, why: "belongs to uid 20001"},
	{name: "a user's directory in a sticky directory", spoil: func(d string) {
		chmod(d, os.ModeSticky|0o777)
		chown(d+"/etc", eve)
	}, why: "/etc belongs to uid 20001"},
	{name: "file directly in a sticky directory", spoil: func(d string) { chmod(d+"/etc", os.ModeSticky|0o777) },
		why: "where every user may create files; move the file"},
	{name: "link to a file of root", spoil: func(d string) { relink(d, "good.yaml") }},
	{name: "link to a user's file", spoil: func(d string) {
		relink(d, "good.yaml")
		chown(d+"/etc/good.yaml", eve)
	}, why: "good.yaml belongs to uid 20001"},
	{name: "link into a user's directory", spoil: func(d string) {
		os.Mkdir(d+"/home", 0o755)
		os.Rename(d+"/etc/caelum.yaml", d+"/home/caelum.yaml")
		os.Symlink("../home/caelum.yaml", d+"/etc/caelum.yaml")
		chown(d+"/home", eve)
	}, why: "/home belongs to uid 20001"},
	{name: "no file", spoil: func(d string) { os.Remove(d + "/etc/caelum.yaml") },
		why: "no such file or directory"},
	{name: "dangling link", spoil: func(d string) {
		os.Remove(d + "/etc/caelum.yaml")
		os.Symlink("/nowhere", d+"/etc/caelum.yaml")
	}, why: "no such file"},
}

// TestPath checks Path with a directory tree that belongs to root. Each case changes one property of this tree.
func TestPath(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to create files of other users")
	}
	for _, c := range paths {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "etc/caelum.yaml")
			if err := errors.Join(os.Mkdir(dir+"/etc", 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			c.spoil(dir)
			got, err := Path(file, c.owners...)
			switch {
			case c.why == "" && (err != nil || filepath.Dir(filepath.Dir(got)) != dir):
				t.Errorf("%q, %v", got, err)
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why) ||
				!strings.HasPrefix(err.Error(), "couldn't use "+file+": ")):
				t.Errorf("want %q, got %q, %v", c.why, got, err)
			}
			if c.name == "no file" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v does not wrap fs.ErrNotExist", err)
			}
		})
	}
}

func TestPathRelative(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	os.WriteFile("caelum.yaml", nil, 0o644)
	if got, err := Path("caelum.yaml"); err != nil || got != filepath.Join(dir, "caelum.yaml") {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Path("/"); err != nil || got != "/" {
		t.Errorf("%q, %v", got, err)
	}
}

func chown(path string, uid int) {
	if err := os.Chown(path, uid, uid); err != nil {
		panic(err)
	}
}

func chmod(path string, mode os.FileMode) {
	if err := os.Chmod(path, mode); err != nil {
		panic(err)
	}
}

// relink renames etc/caelum.yaml to target, and creates a symbolic link to target in its place.
func relink(dir, target string) {
	file := filepath.Join(dir, "etc/caelum.yaml")
	if err := errors.Join(os.Rename(file, filepath.Join(dir, "etc", target)), os.Symlink(target, file)); err != nil {
		panic(err)
	}
}

func TestDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, path := range []string{dir + "/decisions", dir + "/none/repo.db"} {
		if err := Directory(path); err != nil {
			t.Error(err)
		}
	}
	chown(dir, eve)
	if err := Directory(dir + "/decisions"); err == nil ||
		!strings.Contains(
			err.Error(),
			"belongs to uid 20001; run this command as that user (runuser -u uid 20001 -- COMMAND)",
		) {
		t.Error(err)
	}
	chown(dir, 0)
	chmod(dir, 0o777)
	if err := Directory(dir + "/decisions"); err == nil || !strings.Contains(err.Error(), "chmod go-w "+dir) {
		t.Error(err)
	}
}
