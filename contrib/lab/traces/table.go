package traces

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"

	"caelum/internal/sim/trace"
)

// commas splits rows of comma-separated values, which may be quoted.
func commas(text *bufio.Reader) trace.Rows {
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

// number parses the value of a column.
func number(t *trace.Table, column string) (float64, error) {
	x, err := trace.Number(t.Text(column))
	if err != nil {
		return 0, t.Bad(fmt.Errorf("%s: %w", column, err))
	}
	return x, nil
}
