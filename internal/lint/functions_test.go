package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// functionLines is the maximum number of lines in a function, so that it fits on a screen.
const functionLines = 60

// TestFunctionLines checks that no function has more than functionLines lines. Lines inside the function's data do not
// count.
func TestFunctionLines(t *testing.T) {
	eachFile(t, parser.SkipObjectResolution, func(p pkg, set *token.FileSet, file *ast.File) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := 1 + inside(set, f) - dataLines(set, f)
			if name := p.ImportPath + "." + functionName(f); n > functionLines {
				t.Errorf("%v: %s has %d lines, more than %d", set.Position(f.Pos()), name, n, functionLines)
			}
		}
	})
}

// eachFile calls check with the syntax tree of every Go file.
func eachFile(t *testing.T, mode parser.Mode, check func(p pkg, set *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, p := range list(t) {
		for _, name := range files(t, p) {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, mode)
			if err != nil {
				t.Fatal(err)
			}
			check(p, set, file)
		}
	}
}

// inside returns the number of line breaks within a node of the syntax tree.
func inside(set *token.FileSet, n ast.Node) int {
	return set.Position(n.End()).Line - set.Position(n.Pos()).Line
}

// dataLines returns the number of lines inside multi-line strings and inside composite literals without functions, such
// as the rows of a table.
func dataLines(set *token.FileSet, root ast.Node) (n int) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CompositeLit:
			if containsFunction(node) {
				return true
			}
		case *ast.BasicLit:
		default:
			return true
		}
		n += max(0, inside(set, node)-1)
		return false
	})
	return n
}

func containsFunction(root ast.Node) (found bool) {
	ast.Inspect(root, func(node ast.Node) bool {
		_, is := node.(*ast.FuncLit)
		found = found || is
		return !found
	})
	return found
}

// functionName returns the name of a function, or Type.Method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*") + "." + f.Name.Name
}
