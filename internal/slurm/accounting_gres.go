package slurm

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Allocation is slurmdbd's record of a run, including its partition, times and generic resources.
type Allocation struct {
	Record
	Partition string
	Submitted time.Time     // for a run after a requeue, the time of the requeue
	Limit     time.Duration // the time limit; 0 if the job has none
	// Requested and Allocated are the GRES of the entire job, summed over its nodes, to the extent that
	// AccountingStorageTRES lists them. Allocated can exceed Requested, because an --exclusive job is allocated all of
	// a node's GRES.
	Requested, Allocated GRESList
}

// allocationField is a sacct column that is read only for an Allocation.
type allocationField struct {
	name string
	set  func(*Allocation, string) error
}

// allocationFields lists only fields that users cannot write (see recordFields).
var allocationFields = []allocationField{
	{"Partition", func(a *Allocation, s string) error { a.Partition = s; return nil }},
	{"Submit", func(a *Allocation, s string) (err error) { a.Submitted, err = parseTime(s); return err }},
	{"TimelimitRaw", func(a *Allocation, s string) (err error) { a.Limit, err = minutes(s); return err }},
	{"ReqTRES", func(a *Allocation, s string) (err error) { a.Requested, err = ParseTRES(s); return err }},
	{"AllocTRES", func(a *Allocation, s string) (err error) { a.Allocated, err = ParseTRES(s); return err }},
}

// minutes parses a TimelimitRaw value.
func minutes(s string) (time.Duration, error) {
	if isNull(s) || s == "UNLIMITED" || s == "Partition_Limit" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return time.Duration(n) * time.Minute, err
}

// Allocations is like Records, but also returns the other fields of Allocation.
func (c *Client) Allocations(ctx context.Context, field AccountingField, from, to time.Time) ([]Allocation, error) {
	return c.allocations(ctx, field, allocationFields, "", "-S", uts(from), "-E", uts(to))
}

// AllocationsOf returns the runs of the jobs that ref refers to, oldest first. A plain number refers to a job, to all
// tasks of an array or to all components of a het job. 12_3 refers to an array task, and 12+1 to a component of a het
// job. Errors: It returns ErrNoJob if there are no runs that the caller is permitted to see, and ErrNoAccounting if
// slurmdbd did not answer.
func (c *Client) AllocationsOf(ctx context.Context, field AccountingField, ref string) ([]Allocation, error) {
	if !recordRef.MatchString(ref) {
		return nil, fmt.Errorf("%.40q is not a job id", ref)
	}
	whole, component, _ := strings.Cut(ref, "+")
	all, err := c.allocations(ctx, field, allocationFields, "", "-S", uts(time.Time{}), "-j", whole)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(a Allocation) bool {
		if component != "" || strings.Contains(ref, "_") {
			return a.Ref != ref
		}
		id := recordID.FindString(a.Ref)
		return id != ref && strconv.FormatUint(uint64(a.ID), 10) != ref
	})
	slices.SortStableFunc(all, func(a, b Allocation) int { return cmp.Compare(a.Index, b.Index) })
	if len(all) == 0 {
		return nil, fmt.Errorf("job %s: %w", ref, ErrNoJob)
	}
	return all, nil
}

// recordID matches the id of a job, array or het job at the beginning of a Ref.
var recordID = regexp.MustCompile(`^[0-9]+`)

// allocations returns the records that sacct prints for id and args (see sacct). It inserts the additional columns
// (more) before the accounting field. It skips records that it cannot parse, so that they do not hide the others.
func (c *Client) allocations(
	ctx context.Context, field AccountingField, more []allocationField, id string, args ...string,
) ([]Allocation, error) {
	if !slices.Contains(AccountingFields, field) {
		return nil, unknownField(field)
	}
	var names []string
	for _, f := range recordFields {
		names = append(names, f.name)
	}
	for _, f := range more {
		names = append(names, f.name)
	}
	list := []Allocation{}
	err := c.sacct(ctx, append(names, string(field)), id, func(rec []string) (err error) {
		a := Allocation{Record: Record{Text: rec[len(names)]}}
		for i, f := range recordFields {
			err = cmp.Or(err, f.set(&a.Record, rec[i]))
		}
		for i, f := range more {
			err = cmp.Or(err, f.set(&a, rec[len(recordFields)+i]))
		}
		if err == nil && a.ID != 0 {
			list = append(list, a)
		}
		return nil
	}, args...)
	if err != nil {
		return nil, err
	}
	return list, nil
}
