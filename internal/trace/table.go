package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// table is a file of values with a line of names above them.
type table struct {
	file    string
	r       *csv.Reader
	columns map[string]int
	row     []string
	line    int
	seen    map[string]int // name -> the line that it was on
}

// openTable reads the names; each of those wanted must be there, in any order, beside any others.
func openTable(file string, r io.Reader, comma rune, want ...string) (*table, error) {
	t := &table{file: file, r: csv.NewReader(r), columns: map[string]int{}, seen: map[string]int{}}
	t.r.Comma, t.r.ReuseRecord, t.r.LazyQuotes = comma, true, comma != ','
	head, err := t.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, &LineError{file, 1, errors.New("the file is empty; the first line names the columns")}
	} else if err != nil {
		return nil, t.wrong(err)
	}
	for k, name := range head {
		name = strings.TrimPrefix(name, "\ufeff")
		if _, twice := t.columns[name]; twice {
			return nil, &LineError{file, 1, fmt.Errorf("column %s twice", name)}
		}
		t.columns[name] = k
	}
	var missing []string
	for _, name := range want {
		if _, ok := t.columns[name]; !ok {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, &LineError{file, 1, fmt.Errorf("no column %s; there are %s", strings.Join(missing, ", "), strings.Join(head, ", "))}
	}
	return t, nil
}

// each goes through the rows, up to the first for which do has an error.
func (t *table) each(do func() error) error {
	for {
		if more, err := t.next(); err != nil || !more {
			return err
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// once notes that a row is of somebody, who must not have been in one before.
func (t *table) once(who, name, advice string) error {
	if first, twice := t.seen[name]; twice {
		return t.bad(fmt.Errorf("%s %s is on line %d already%s", who, name, first, advice))
	}
	t.seen[name] = t.line
	return nil
}

// next goes to the next row; false at the end.
func (t *table) next() (bool, error) {
	row, err := t.r.Read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	t.row = row
	if err != nil {
		return false, t.wrong(err)
	}
	t.line, _ = t.r.FieldPos(0)
	return true, nil
}

// wrong names the line of an error.
func (t *table) wrong(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		if errors.Is(p.Err, csv.ErrFieldCount) {
			return &LineError{t.file, p.Line, fmt.Errorf("%d values for %d columns", len(t.row), len(t.columns))}
		}
		return &LineError{t.file, p.Line, p.Err}
	}
	return &LineError{t.file, max(t.line, 1), err}
}

// bad is what is wrong with the row.
func (t *table) bad(err error) error { return &LineError{t.file, t.line, err} }

// has reports whether there is a column.
func (t *table) has(column string) bool { _, ok := t.columns[column]; return ok }

func (t *table) text(column string) string { return t.row[t.columns[column]] }

// number reads a column's value, at least 0 and finite.
func (t *table) number(column string) (float64, error) {
	x, err := strconv.ParseFloat(t.text(column), 64)
	if err != nil || x < 0 || x-x != 0 {
		return 0, t.bad(fmt.Errorf("%s is %q: not a number of at least 0", column, t.text(column)))
	}
	return x, nil
}

// numbers reads several columns.
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
