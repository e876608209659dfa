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

// harmless lists the files whose goroutines need no race detector, with the reason for each.
var harmless = map[string]string{
	"cmd/caelum/main_test.go":     "the state is constant; internal/node/api tests the server with the race detector",
	"cmd/caelum/complete_test.go": "the state is constant; internal/node/api tests the server with the race detector",
}

// withoutRace returns the packages that `make unit` tests without the race detector: those in the Makefile's PURE
// variable.
func withoutRace(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\nPURE := ")
	value, _, ended := strings.Cut(strings.ReplaceAll(rest, "\\\n", " "), "\n")
	if !ok || !ended {
		t.Fatal("the Makefile has no variable PURE")
	}
	return strings.Fields(value)
}

// goroutines returns the positions at which a file starts goroutines. This happens with a go statement or by calling
// a method named Go, such as sync.WaitGroup's.
func goroutines(t *testing.T, path string, src any) (at []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		starts := false
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			method, ok := n.Fun.(*ast.SelectorExpr)
			starts = ok && method.Sel.Name == "Go"
		}
		if starts {
			at = append(at, fset.Position(n.Pos()).String())
		}
		return true
	})
	return at
}

// TestPackagesWithoutRace checks that `make unit` uses the race detector for packages that start goroutines.
func TestPackagesWithoutRace(t *testing.T) {
	for _, p := range withoutRace(t) {
		files, err := filepath.Glob("../../" + p + "/*.go")
		if err != nil || len(files) == 0 {
			t.Errorf("PURE in the Makefile names %s, which has no Go files (%v)", p, err)
		}
		for _, f := range files {
			if harmless[strings.TrimPrefix(f, "../../")] != "" {
				continue
			}
			for _, at := range goroutines(t, f, nil) {
				t.Errorf("%s starts a goroutine: remove %s from PURE in the Makefile", at, p)
			}
		}
	}
}

func TestGoroutines(t *testing.T) {
	const src = `package p
		func f() { go g() }
		func h() { var w sync.WaitGroup; w.Go(g); w.Wait() }
		func g() {}`
	if at := goroutines(t, "p.go", src); len(at) != 2 {
		t.Errorf("goroutines returned the positions %v, want two positions", at)
	}
}
