package docs

import (
	"regexp"
	"strings"
	"testing"
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
