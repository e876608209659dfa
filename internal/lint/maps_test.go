package lint

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mapped returns the packages whose comment in doc.go must have a line for each of their files: all packages in
// internal with several files, and the others that are listed here.
func mapped(t *testing.T) []string {
	dirs := []string{
		"cmd/caelum", "contrib/devcluster/chaos", "contrib/devcluster/cluster", "contrib/devcluster/oracle",
		"contrib/lab/bench", "contrib/lab/learn", "contrib/lab/papers", "contrib/lab/policies",
		"contrib/lab/reconfigure", "contrib/lab/simulate", "contrib/lab/sizing", "contrib/lab/traces",
	}
	files := map[string]int{}
	err := fs.WalkDir(os.DirFS("../.."), "internal", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && d.Name() != "doc.go" {
			files[path.Dir(name)]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if files[dir] > 1 {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// entry matches the beginning of a line in a package comment that describes a file.
var entry = regexp.MustCompile(`(?m)^//\t(\w+\.go) `)

func TestFileMaps(t *testing.T) {
	for _, dir := range mapped(t) {
		text, err := os.ReadFile(filepath.Join("../..", dir, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		var named []string
		for _, m := range entry.FindAllStringSubmatch(string(text), -1) {
			named = append(named, m[1])
		}
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("couldn't find the Go files of %s (%v)", dir, err)
		}
		var files []string
		for _, path := range paths {
			name := filepath.Base(path)
			if name == "doc.go" || strings.HasSuffix(name, "_test.go") {
				continue
			}
			files = append(files, name)
			if !slices.Contains(named, name) {
				t.Errorf("%s/doc.go does not describe %s; add a line", dir, name)
			}
		}
		for k, name := range named {
			if !slices.Contains(files, name) {
				t.Errorf("%s/doc.go names %s, which does not exist; remove or rename the line", dir, name)
			} else if slices.Contains(named[:k], name) {
				t.Errorf("%s/doc.go names %s twice; remove one of the lines", dir, name)
			}
		}
	}
}
