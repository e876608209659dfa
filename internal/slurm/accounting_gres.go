package slurm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Allocation is slurmdbd's record of a run, with the partition and the generic resources of the run.
type Allocation struct {
	Record
	Partition string
	// Requested and Allocated contain the GRES of the whole job, summed over its nodes, as far as AccountingStorageTRES
	// lists them. slurmctld allocates every GRES of a node to an --exclusive job, so that Allocated can contain more
	// than Requested.
	Requested, Allocated GRESList
}

// allocationField is a column of sacct that only Allocation contains.
type allocationField struct {
	name string
	set  func(*Allocation, string) error
}

// allocationFields contains fields that users cannot write (see recordFields).
var allocationFields = []allocationField{
	{"Partition", func(a *Allocation, s string) error { a.Partition = s; return nil }},
	{"ReqTRES", func(a *Allocation, s string) (err error) { a.Requested, err = ParseTRES(s); return err }},
	{"AllocTRES", func(a *Allocation, s string) (err error) { a.Allocated, err = ParseTRES(s); return err }},
}

// Allocations is like Records, and also returns the partition and the generic resources of each run.
func (c *Client) Allocations(ctx context.Context, field AccountingField, from, to time.Time) ([]Allocation, error) {
	return c.allocations(ctx, field, allocationFields, "-S", uts(from), "-E", uts(to))
}

// allocations runs sacct and parses its output. The columns in more precede the accounting field.
func (c *Client) allocations(
	ctx context.Context, field AccountingField, more []allocationField, args ...string,
) ([]Allocation, error) {
	if !slices.Contains(AccountingFields, field) {
		return nil, fmt.Errorf("accounting field %q: use one of %v", field, AccountingFields)
	}
	sep := newSeparator()
	var names []string
	for _, f := range recordFields {
		names = append(names, f.name)
	}
	for _, f := range more {
		names = append(names, f.name)
	}
	out, err := c.sacct(ctx, sep, strings.Join(append(names, string(field)), ","), args...)
	if err != nil {
		return nil, err
	}
	return parseAllocations(out, sep, more)
}

// parseAllocations parses the output of sacct, whose last column is the requested accounting field. It omits a record
// that cannot be parsed, so that this record does not hide the other records.
func parseAllocations(out, sep string, more []allocationField) ([]Allocation, error) {
	columns := len(recordFields) + len(more)
	records, err := splitRecords(out, sep, columns+1)
	if err != nil {
		return nil, unparsable("sacct", err)
	}
	list := make([]Allocation, 0, len(records))
	for _, rec := range records {
		a := Allocation{Record: Record{Text: rec[columns]}}
		for i, f := range recordFields {
			err = cmp.Or(err, f.set(&a.Record, rec[i]))
		}
		for i, f := range more {
			err = cmp.Or(err, f.set(&a, rec[len(recordFields)+i]))
		}
		if err == nil && a.ID != 0 {
			list = append(list, a)
		}
		err = nil
	}
	return list, nil
}
