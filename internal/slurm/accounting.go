package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AccountingField is a field of a job's accounting record that an admin may write and its user may not.
type AccountingField string

const (
	// AdminComment is written by slurmctld too, which has job_submit.lua's words there, at the end of each run.
	AdminComment AccountingField = "AdminComment"
	// SystemComment is empty unless a burst buffer's plugin writes it.
	SystemComment AccountingField = "SystemComment"
)

// AccountingFields are those that Caelum can keep its summaries in. (Comment is the user's own, and Extra cannot be set
// in 22.05.)
var AccountingFields = []AccountingField{AdminComment, SystemComment}

var (
	// ErrNoAccounting: slurmdbd did not answer. The call may be repeated.
	ErrNoAccounting = errors.New("slurmdbd cannot be reached")
	// ErrSpoils: the text would not be in the record as it was given.
	ErrSpoils = errors.New(
		"sacctmgr would change what another tool keeps in the field: it writes lower-case letters only, and ` for quotes (22.05.8)",
	)
)

// Record is what slurmdbd has of one run of a job; each task of an array and each component of a het job is a job of
// its own, and a requeued job has one for each of its runs.
type Record struct {
	ID      uint32 // the raw one
	Ref     string // as sacct and sacctmgr name it: 12, 12_3, 12+0
	Index   uint64 // slurmdbd's own
	UID     uint32
	User    string
	Account string
	State   string    // RUNNING, COMPLETED, CANCELLED, REQUEUED, ...
	Exit    int       // the batch script's exit status, 128 and the signal's number if that ended it
	Start   time.Time // zero: it never started
	End     time.Time // zero: it is not over
	Nodes   []string
	Comment string // admin_comment
	Text    string // of the field that was asked for
}

// recordFields are those that users do not write, so that none of them can become another: sacct's delimiter stands on
// its command line, which everybody on the host can read.
var recordFields = []struct {
	name string
	set  func(*Record, string) error
}{
	{"JobIDRaw", func(r *Record, s string) error { return id32(&r.ID, s) }},
	{"JobID", func(r *Record, s string) error { r.Ref = s; return nil }},
	{"DBIndex", func(r *Record, s string) (err error) { r.Index, err = strconv.ParseUint(s, 10, 64); return err }},
	{"UID", func(r *Record, s string) error { return id32(&r.UID, s) }},
	{"User", func(r *Record, s string) error { r.User = s; return nil }},
	{"Account", func(r *Record, s string) error { r.Account = s; return nil }},
	{"State", func(r *Record, s string) error { r.State, _, _ = strings.Cut(s, " "); return nil }}, // CANCELLED by 1000
	{"ExitCode", func(r *Record, s string) (err error) { r.Exit, err = exitStatus(s); return err }},
	{"Start", func(r *Record, s string) (err error) { r.Start, err = parseTime(s); return err }},
	{"End", func(r *Record, s string) (err error) { r.End, err = parseTime(s); return err }},
	{"NodeList", func(r *Record, s string) (err error) { r.Nodes, err = recordNodes(s); return err }},
	{"AdminComment", func(r *Record, s string) error { r.Comment = s; return nil }},
}

// recordNodes: a job that never started has "None assigned".
func recordNodes(s string) ([]string, error) {
	if s == "None assigned" {
		return nil, nil
	}
	return ExpandHosts(s)
}

// exitStatus reads "status:signal".
func exitStatus(s string) (int, error) {
	status, signal, _ := strings.Cut(s, ":")
	n, err1 := strconv.Atoi(status)
	k, err2 := strconv.Atoi(signal)
	if err1 != nil || err2 != nil || n < 0 || k < 0 {
		return 0, fmt.Errorf("exit code %.20q", s)
	}
	if k > 0 {
		return 128 + k, nil
	}
	return n, nil
}

// Records lists the runs of jobs that were in the queue or ran at some time from one time to another, whoever's they
// are, with a field of theirs. Ask for a day or so at once: slurmdbd reads them all before it answers. Whoever is no
// operator is shown his own where slurmdbd.conf hides the others'. ErrNoAccounting.
func (c *Client) Records(ctx context.Context, field AccountingField, from, to time.Time) ([]Record, error) {
	return c.records(ctx, field, "-S", uts(from), "-E", uts(to))
}

// RecordsOf lists the runs of one job, oldest first; none is ErrNoJob. An id that was given out anew after slurmctld
// lost its state has those of both jobs. ErrNoAccounting.
func (c *Client) RecordsOf(ctx context.Context, field AccountingField, id uint32) ([]Record, error) {
	all, err := c.records(ctx, field, "-S", uts(time.Time{}), "-j", strconv.FormatUint(uint64(id), 10))
	if err != nil {
		return nil, err
	}
	// Asked for the id of an array, sacct lists its tasks.
	all = slices.DeleteFunc(all, func(r Record) bool { return r.ID != id })
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Index, b.Index) })
	if len(all) == 0 {
		return nil, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	return all, nil
}

// Names are the job names of Records with the same times, by Record.Index. They are asked for apart, since users write
// them: a name that imitates what ends a field is an error here, and nothing more.
func (c *Client) Names(ctx context.Context, from, to time.Time) (map[uint64]string, error) {
	sep := newSeparator()
	out, err := c.sacct(ctx, sep, "DBIndex,JobName", "-S", uts(from), "-E", uts(to))
	if err != nil {
		return nil, err
	}
	records, err := splitRecords(out, sep, 2)
	if err != nil {
		return nil, fmt.Errorf("sacct %w", err)
	}
	names := make(map[uint64]string, len(records))
	for _, rec := range records {
		index, err := strconv.ParseUint(rec[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("sacct: DBIndex %.20q", rec[0])
		}
		if _, twice := names[index]; twice {
			return nil, errors.New("sacct: one of the job names imitates another's record")
		}
		names[index] = rec[1]
	}
	return names, nil
}

func (c *Client) records(ctx context.Context, field AccountingField, args ...string) ([]Record, error) {
	if !slices.Contains(AccountingFields, field) {
		return nil, fmt.Errorf("accounting field %q: there are %v", field, AccountingFields)
	}
	sep := newSeparator()
	var names []string
	for _, f := range recordFields {
		names = append(names, f.name)
	}
	out, err := c.sacct(ctx, sep, strings.Join(append(names, string(field)), ","), args...)
	if err != nil {
		return nil, err
	}
	return parseRecords(out, sep)
}

// sacct lists each run once (-X: without its steps), those that a requeue ended too (-D), each field ended by the
// separator (-p).
func (c *Client) sacct(ctx context.Context, sep, fields string, args ...string) (string, error) {
	out, err := c.run(
		ctx,
		nil,
		c.sacctPath,
		slices.Concat(c.whose, []string{"-D", "-X", "-n", "-p", "--delimiter=" + sep, "-o", fields}, args)...)
	return out, ofAccounting(err)
}

// parseRecords reads what sacct printed, with the field that was asked for last. A record that cannot be read is left
// out: it shall not keep the others from being read.
func parseRecords(out, sep string) ([]Record, error) {
	records, err := splitRecords(out, sep, len(recordFields)+1)
	if err != nil {
		return nil, fmt.Errorf("sacct %w", err)
	}
	list := make([]Record, 0, len(records))
	for _, rec := range records {
		r := Record{Text: rec[len(recordFields)]}
		for i, f := range recordFields {
			if err = f.set(&r, rec[i]); err != nil {
				break
			}
		}
		if err == nil && r.ID != 0 {
			list = append(list, r)
		}
	}
	return list, nil
}

// uts is a time as Slurm's commands read it wherever they run; less than a million seconds is none to them (22.05.8).
func uts(t time.Time) string {
	return "uts" + strconv.FormatInt(max(t.Unix(), 1e6), 10)
}

// ofAccounting says of what did not answer that it is slurmdbd.
func ofAccounting(err error) error {
	var e *CommandError
	if errors.As(err, &e) && errors.Is(e.Err, ErrUnreachable) {
		e.Err = ErrNoAccounting
	}
	return err
}

// textMost is what MariaDB's column holds, bytes; what is longer is cut without a word (22.05.8).
const textMost = 65535

// SetAccounting writes a field of a job's accounting record, which must be its newest, and over: sacctmgr finds no
// other, and slurmctld writes AdminComment anew when a run ends (22.05.8). It takes some 0.3 s. ErrJobState: it is not
// over. ErrSpoils: nothing is written. ErrNoAccounting.
func (c *Client) SetAccounting(ctx context.Context, r Record, field AccountingField, text string) error {
	if !slices.Contains(AccountingFields, field) {
		return fmt.Errorf("accounting field %q: there are %v", field, AccountingFields)
	}
	if !recordRef.MatchString(r.Ref) {
		return fmt.Errorf("job %d: %.40q names no job to sacctmgr", r.ID, r.Ref)
	}
	if r.End.IsZero() {
		return fmt.Errorf("job %s is %s: %w", r.Ref, r.State, ErrJobState)
	}
	if strings.ContainsRune(text, 0) || len(text) > textMost {
		return fmt.Errorf("job %s: a text of %d bytes cannot be its %s", r.Ref, len(text), field)
	}
	if spoils(text) {
		return fmt.Errorf("job %s, %s: %w", r.Ref, field, ErrSpoils)
	}
	_, err := c.run(ctx, nil, c.sacctmgr, "-i", "modify", "job", "where", "jobid="+r.Ref, "set", string(field)+"="+text)
	return ofAccounting(err)
}

// recordRef is how sacctmgr names one record. The bare id of an array is all its tasks, and that of a het job all its
// components (22.05.8).
var recordRef = regexp.MustCompile(`^[0-9]+([_+][0-9]+)?$`)

// spoils reports whether sacctmgr would change words that are not Caelum's.
func spoils(text string) bool {
	for _, word := range strings.Fields(text) {
		if !strings.HasPrefix(word, "caelum:") && strings.ContainsAny(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ'\"") {
			return true
		}
	}
	return false
}
