package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// table parses a file with a line of column names followed by rows of values.
type table struct {
	file    string
	read    rows
	columns map[string]int
	row     []string
	line    int
	seen    map[string]int // the line on which each name occurs
}

// rows returns the next row and its line number. The row is valid until the next call.
type rows func() (row []string, line int, err error)

// commas splits rows of comma-separated values, which may be quoted.
func commas(text *bufio.Reader) rows {
	c := csv.NewReader(text)
	c.ReuseRecord, c.FieldsPerRecord = true, -1
	return func() ([]string, int, error) {
		row, err := c.Read()
		var p *csv.ParseError
		if errors.As(err, &p) {
			return nil, p.StartLine, p.Err
		} else if err != nil {
			return nil, 0, err
		}
		line, _ := c.FieldPos(0)
		return row, line, nil
	}
}

// bars splits rows of values separated by vertical bars, as in the output of sacct -P. Quotes have no special meaning,
// and no value may include a bar or a newline.
func bars(text *bufio.Reader) rows {
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

// openTable reads the column names. The columns in want must exist, in any order. Other columns are ignored, and empty
// lines are skipped.
func openTable(file string, r io.Reader, split func(*bufio.Reader) rows, want ...string) (*table, error) {
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
	t := &table{file: file, read: split(text), columns: map[string]int{}, seen: map[string]int{}}
	if more, err := t.next(); err != nil {
		return nil, err
	} else if !more {
		return nil, &LineError{file, 1, errors.New("the file is empty; the first line must contain the column names")}
	}
	for k, name := range t.row {
		if _, twice := t.columns[name]; twice {
			return nil, t.bad(fmt.Errorf("column %.60q appears twice", name))
		}
		t.columns[name] = k
	}
	var missing []string
	for _, name := range want {
		if !t.has(name) {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, t.bad(
			fmt.Errorf(
				"the table lacks column %s; the columns are %.300s",
				strings.Join(missing, ", "),
				strings.Join(t.row, ", "),
			),
		)
	}
	return t, nil
}

// each calls do for every row and stops at the first error.
func (t *table) each(do func() error) error {
	for {
		if more, err := t.next(); err != nil || !more {
			return err
		}
		if len(t.row) != len(t.columns) {
			return t.bad(fmt.Errorf("the line has %d values, but the table has %d columns", len(t.row), len(t.columns)))
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// once checks that the name in the row does not occur in an earlier row.
func (t *table) once(kind, name, advice string) error {
	if name == "" {
		return t.bad(fmt.Errorf("the %s has no name", kind))
	}
	if first, twice := t.seen[name]; twice {
		return t.bad(fmt.Errorf("%s %.60s is already on line %d%s", kind, name, first, advice))
	}
	t.seen[name] = t.line
	return nil
}

// next reads the next row. It returns false at the end of the file.
func (t *table) next() (bool, error) {
	row, line, err := t.read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	t.row, t.line = row, cmp.Or(line, t.line, 1)
	if err != nil {
		return false, t.bad(err)
	}
	return true, nil
}

// bad adds the file name and the line number of the current row to an error.
func (t *table) bad(err error) error { return &LineError{t.file, t.line, err} }

// has reports whether the table contains the column.
func (t *table) has(column string) bool { _, ok := t.columns[column]; return ok }

func (t *table) text(column string) string { return t.row[t.columns[column]] }

// number parses the value of one column.
func (t *table) number(column string) (float64, error) {
	x, err := number(t.text(column))
	if err != nil {
		return 0, t.bad(fmt.Errorf("%s: %w", column, err))
	}
	return x, nil
}

// numbers parses the values of several columns.
func (t *table) numbers(columns ...string) ([]float64, error) {
	all := make([]float64, len(columns))
	for k, c := range columns {
		var err error
		if all[k], err = t.number(c); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// number parses a number from 0 to 1e12 (about 30,000 years in seconds). Because of this limit, the sum over all rows
// in a file is finite.
func number(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 1e12) {
		return 0, fmt.Errorf("%.60q is not a number from 0 to 1e12", s)
	}
	return x, nil
}
