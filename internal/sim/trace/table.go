package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Table parses a file with a line of column names followed by rows of values.
type Table struct {
	file    string
	read    Rows
	columns map[string]int
	row     []string
	line    int
	seen    map[string]int // the line on which each name occurs
}

// Rows returns the next row and its line number, or io.EOF. The row is valid until the next call.
type Rows func() (row []string, line int, err error)

// bars splits rows of values separated by vertical bars, as in the output of sacct -P. Quotes have no special meaning,
// and no value may include a bar or a newline.
func bars(text *bufio.Reader) Rows {
	line := 0
	return func() ([]string, int, error) {
		for {
			row, err := text.ReadString('\n')
			if err != nil && (!errors.Is(err, io.EOF) || row == "") {
				return nil, 0, err
			}
			line++
			if row = strings.TrimRight(row, "\r\n"); row != "" {
				return strings.Split(row, "|"), line, nil
			}
		}
	}
}

// OpenTable reads the column names. split splits the text into rows. The columns in want must exist, in any order.
// Other columns are ignored, and empty lines are skipped.
func OpenTable(file string, r io.Reader, split func(*bufio.Reader) Rows, want ...string) (*Table, error) {
	text := bufio.NewReader(r)
	start, _ := text.Peek(512) // a read error will recur at the next read
	if before, _, binary := bytes.Cut(start, []byte{0}); binary {
		return nil, &LineError{
			file,
			1 + bytes.Count(before, []byte("\n")),
			errors.New("the file is not UTF-8 text; unpack or convert the file first"),
		}
	}
	if bytes.HasPrefix(start, []byte("\ufeff")) {
		text.Discard(len("\ufeff"))
	}
	t := &Table{file: file, read: split(text), columns: map[string]int{}, seen: map[string]int{}}
	if more, err := t.next(); err != nil {
		return nil, err
	} else if !more {
		return nil, &LineError{file, 1, errors.New("the file is empty; the first line must contain the column names")}
	}
	for k, name := range t.row {
		if _, twice := t.columns[name]; twice {
			return nil, t.Bad(fmt.Errorf("column %.60q appears twice", name))
		}
		t.columns[name] = k
	}
	var missing []string
	for _, name := range want {
		if !t.Has(name) {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, t.Bad(
			fmt.Errorf(
				"the table lacks column %s; the columns are %.300s",
				strings.Join(missing, ", "),
				strings.Join(t.row, ", "),
			),
		)
	}
	return t, nil
}

// Each calls do for every row and stops at the first error.
func (t *Table) Each(do func() error) error {
	for {
		if more, err := t.next(); err != nil || !more {
			return err
		}
		if len(t.row) != len(t.columns) {
			return t.Bad(fmt.Errorf("the line has %d values, but the table has %d columns", len(t.row), len(t.columns)))
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// Once checks that the name in the row does not occur in an earlier row.
func (t *Table) Once(kind, name, advice string) error {
	if name == "" {
		return t.Bad(fmt.Errorf("the %s has no name", kind))
	}
	if first, twice := t.seen[name]; twice {
		return t.Bad(fmt.Errorf("%s %.60s is already on line %d%s", kind, name, first, advice))
	}
	t.seen[name] = t.line
	return nil
}

// next reads the next row. It returns false at the end of the file.
func (t *Table) next() (bool, error) {
	row, line, err := t.read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	t.row, t.line = row, cmp.Or(line, t.line, 1)
	if err != nil {
		return false, t.Bad(err)
	}
	return true, nil
}

// Bad adds the file name and the line number of the current row to an error.
func (t *Table) Bad(err error) error { return &LineError{t.file, t.line, err} }

// Has reports whether the table contains the column.
func (t *Table) Has(column string) bool { _, ok := t.columns[column]; return ok }

// Text returns the value of a column in the current row.
func (t *Table) Text(column string) string { return t.row[t.columns[column]] }

// Number parses a number from 0 to 1e12 (about 30,000 years in seconds). Because of this limit, the sum over all rows
// in a file is finite.
func Number(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 1e12) {
		return 0, fmt.Errorf("%.60q is not a number from 0 to 1e12", s)
	}
	return x, nil
}
