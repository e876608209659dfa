package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// delimiter is the line below a table's header.
var delimiter = regexp.MustCompile(`^\|(?: *:?-+:? *\|)+$`)

// columns returns the number of cells in a row. A bar in a cell is written \|, between backticks
// too (GitHub Flavored Markdown, tables).
func columns(row string) int {
	return strings.Count(strings.ReplaceAll(row, `\|`, ""), "|") - 1
}

// TestTablesAreWhole checks that every table has a header, and the same number of cells in each row. Rows after a blank
// line do not belong to a table: they are shown as text with bars.
func TestTablesAreWhole(t *testing.T) {
	for _, page := range pages(t) {
		fenced, rows, want := false, 0, 0
		for n, line := range strings.Split(read(t, page), "\n") {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if fenced || !strings.HasPrefix(line, "|") {
				if rows == 1 {
					t.Errorf("%s:%d: a table of one line", page, n)
				}
				rows = 0
				continue
			}
			if rows++; rows == 1 {
				want = columns(line)
			}
			switch {
			case !strings.HasSuffix(line, "|"):
				t.Errorf("%s:%d: a row of a table without a bar at its end", page, n+1)
			case rows == 2 && !delimiter.MatchString(line):
				t.Errorf("%s:%d: a table without a header", page, n)
			case columns(line) != want:
				t.Errorf("%s:%d: %d cells, the first row has %d", page, n+1, columns(line), want)
			}
		}
	}
}

// maxCell limits the characters of a table's cell. Text of more characters belongs below the table.
const maxCell = 250

// longCells lists the pages whose tables have longer cells, until they are shortened.
var longCells = []string{"contrib/lab/results.md"}

// TestCellsAreShort checks the length of the tables' cells.
func TestCellsAreShort(t *testing.T) {
	for _, page := range pages(t) {
		if slices.Contains(longCells, page) {
			continue
		}
		for n, line := range strings.Split(read(t, page), "\n") {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, "/"), "|") {
				if length := utf8.RuneCountInString(strings.TrimSpace(cell)); length > maxCell {
					t.Errorf("%s:%d: a cell has %d characters, more than %d", page, n+1, length, maxCell)
				}
			}
		}
	}
}
