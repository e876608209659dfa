package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	goWidth  = 120 // the maximum width of a Go line, with tab stops every tabWidth columns
	tabWidth = 4
)

// columns returns the width of a line, with tab stops every tabWidth columns.
func columns(line string) (w int) {
	for _, r := range line {
		if r == '\t' {
			w += tabWidth - 1 - w%tabWidth
		}
		w++
	}
	return w
}

// files returns the paths of a package's Go files, including the tests and the files with build constraints.
func files(t *testing.T, p pkg) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("couldn't find the Go files of %s (%v)", p.ImportPath, err)
	}
	return names
}

// TestGoLines checks that lines in Go files have at most goWidth columns. Table rows in raw strings may be longer.
func TestGoLines(t *testing.T) {
	for _, p := range list(t) {
		for _, name := range files(t, p) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for line := range strings.SplitSeq(string(text), "\n") {
				n++
				if w := columns(line); w > goWidth && !strings.HasPrefix(line, "|") {
					t.Errorf("%s:%d has %d columns, more than %d", name, n, w, goWidth)
				}
			}
		}
	}
}

// TestImports checks that every file imports the standard library first, then other modules, and then Caelum's
// packages, with blank lines between these groups only.
func TestImports(t *testing.T) {
	eachFile(t, parser.ImportsOnly, func(_ pkg, set *token.FileSet, file *ast.File) {
		group, last := 0, 0
		for _, i := range file.Imports {
			if i.Path.Value == `"C"` {
				continue
			}
			g, at := importGroup(i.Path.Value), set.Position(i.Pos())
			if last > 0 && (g < group || (at.Line > last+1) != (g > group)) {
				t.Errorf("%v: %s is in the wrong group of imports", at, i.Path.Value)
			}
			group, last = g, at.Line
		}
	})
}

// importGroup returns the position of a quoted import path's group.
func importGroup(path string) int {
	first, _, _ := strings.Cut(strings.Trim(path, `"`), "/")
	switch {
	case first == "caelum":
		return 2
	case strings.Contains(first, "."):
		return 1
	}
	return 0
}
