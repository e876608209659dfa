package usagetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"caelum/internal/slurm"
)

// Accounting emulates slurmdbd in memory and behaves like sacct and sacctmgr 22.05.8.
type Accounting struct {
	mu      sync.Mutex
	Records map[uint32][]slurm.Record
	Away    error
	Calls   int
	Refused int    // the number of writes rejected because the record was not the newest or its run had not ended
	Wrote   func() // called after each write; the caller does not hold the lock
}

// NewAccounting returns an emulated slurmdbd without records.
func NewAccounting() *Accounting { return &Accounting{Records: map[uint32][]slurm.Record{}} }

// Set replaces the records of a job, while other goroutines may use the database.
func (d *Accounting) Set(job uint32, records ...slurm.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Records[job] = records
}

// RecordsOf returns the records of a job.
func (d *Accounting) RecordsOf(_ context.Context, _ slurm.AccountingField, job uint32) ([]slurm.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Calls++
	switch {
	case d.Away != nil:
		return nil, d.Away
	case d.Records[job] == nil:
		return nil, errors.New("no such job")
	}
	return slices.Clone(d.Records[job]), nil
}

// SetAccounting replaces the text in a job's newest record. It returns slurm.ErrSpoils if the new text begins with
// Another.
func (d *Accounting) SetAccounting(_ context.Context, r slurm.Record, _ slurm.AccountingField, text string) error {
	d.mu.Lock()
	d.Calls++
	err := d.Away
	records := d.Records[r.ID]
	newest := &records[len(records)-1]
	switch {
	case err != nil:
	case newest.Start != r.Start || newest.End.IsZero():
		d.Refused++
		err = errors.New("not the newest record, or its run has not ended")
	case strings.HasPrefix(text, "Another"):
		err = slurm.ErrSpoils
	default:
		newest.Text = strings.ToLower(text)
	}
	d.mu.Unlock()
	if d.Wrote != nil && err == nil {
		d.Wrote()
	}
	return err
}

// Text returns the text in a job's newest record.
func (d *Accounting) Text(job uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Records[job][len(d.Records[job])-1].Text
}
