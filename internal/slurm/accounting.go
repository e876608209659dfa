package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AccountingField is a field of a job's accounting record that administrators can write, but the job's user cannot.
type AccountingField string

const (
	// AdminComment holds job_submit.lua's tags, which slurmctld also copies into the record at the end of each run.
	AdminComment AccountingField = "AdminComment"
	// SystemComment is empty unless a burst buffer plugin has written to it.
	SystemComment AccountingField = "SystemComment"
)

// AccountingFields lists the fields in which Caelum can store its summaries. It leaves out Comment, which users can
// write, and Extra, which sacctmgr 22.05 cannot set.
var AccountingFields = []AccountingField{AdminComment, SystemComment}

func unknownField(field AccountingField) error {
	return fmt.Errorf("accounting field %q: use %s or %s", field, AdminComment, SystemComment)
}

var (
	// ErrNoAccounting means that slurmdbd did not answer. The caller may retry.
	ErrNoAccounting = errors.New("slurmdbd cannot be reached")
	// ErrSpoils means that sacctmgr would alter the given text before storing it.
	ErrSpoils = errors.New(
		"sacctmgr would change another tool's text in the field: sacctmgr replaces quotes with ` and, up to Slurm " +
			"22.05, also changes letters to lower case",
	)
)

// Record is slurmdbd's record of one run of a job. Each array task and each component of a het job counts as a separate
// job, and a requeued job has one record for each of its runs.
type Record struct {
	ID      uint32 // JobIDRaw
	Ref     string // the job's name in sacct and sacctmgr, e.g. 12, 12_3 or 12+0
	Index   uint64 // slurmdbd's index of the record
	UID     uint32
	User    string
	Account string
	State   string    // RUNNING, COMPLETED, CANCELLED, REQUEUED, ...
	Exit    int       // the batch script's exit status, or 128 plus the number of the signal that ended it
	Start   time.Time // zero if the job never started
	End     time.Time // zero if the job has not ended
	Nodes   []string
	Comment string // admin_comment
	Text    string // the value of the requested accounting field
}

// recordFields lists only fields that users cannot write. Everyone on the host can read the separator in sacct's
// command line, so users could forge the end of a field that they can write.
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

// recordNodes parses a NodeList, which is "None assigned" for a job that never started.
func recordNodes(s string) ([]string, error) {
	if s == "None assigned" {
		return nil, nil
	}
	return ExpandHosts(s)
}

// exitStatus parses an ExitCode of the form "status:signal".
func exitStatus(s string) (int, error) {
	status, signal, _ := strings.Cut(s, ":")
	n, err1 := strconv.Atoi(status)
	k, err2 := strconv.Atoi(signal)
	if err1 != nil || err2 != nil || n < 0 || k < 0 {
		return 0, fmt.Errorf("the exit code %.20q does not have the form STATUS:SIGNAL", s)
	}
	if k > 0 {
		return 128 + k, nil
	}
	return n, nil
}

// Records returns the runs of all users' jobs that were waiting or running between the times from and to. Each Record's
// Text is the content of the given accounting field. The period should be at most about a day, because slurmdbd reads
// all of the records before it answers. If slurmdbd.conf hides other users' jobs, callers who are not operators see
// only their own jobs. Errors: ErrNoAccounting.
func (c *Client) Records(ctx context.Context, field AccountingField, from, to time.Time) ([]Record, error) {
	return c.records(ctx, field, "", "-S", uts(from), "-E", uts(to))
}

// RecordsOf returns the runs of one job, oldest first. If slurmctld lost its state and reused the id, these are the
// runs of both jobs. Errors: It returns ErrNoJob if the job has no runs, and ErrNoAccounting if slurmdbd did not
// answer.
func (c *Client) RecordsOf(ctx context.Context, field AccountingField, id uint32) ([]Record, error) {
	// If the id belongs to an array, sacct prints all of its tasks.
	own := strconv.FormatUint(uint64(id), 10)
	all, err := c.records(ctx, field, own, "-S", uts(time.Time{}), "-j", own)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Index, b.Index) })
	if len(all) == 0 {
		return nil, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	return all, nil
}

// Names returns the job names in the records between two times, keyed by Record.Index. The names are requested
// separately, because users choose them: if one looks like the end of a field, only this request fails.
func (c *Client) Names(ctx context.Context, from, to time.Time) (map[uint64]string, error) {
	return c.names(ctx, "-S", uts(from), "-E", uts(to))
}

// NamesOf is like Names, but for the records of the jobs that ref refers to (see AllocationsOf). The result may
// include other components of the same het job.
func (c *Client) NamesOf(ctx context.Context, ref string) (map[uint64]string, error) {
	if !recordRef.MatchString(ref) {
		return nil, fmt.Errorf("%.40q is not a job id", ref)
	}
	whole, _, _ := strings.Cut(ref, "+")
	return c.names(ctx, "-S", uts(time.Time{}), "-j", whole)
}

func (c *Client) names(ctx context.Context, args ...string) (map[uint64]string, error) {
	names := map[uint64]string{}
	err := c.sacct(ctx, []string{"DBIndex", "JobName"}, "", func(rec []string) error {
		index, err := strconv.ParseUint(rec[0], 10, 64)
		if err != nil {
			return unparsable("sacct", fmt.Errorf("the DBIndex %.20q is not a number", rec[0]))
		}
		if _, twice := names[index]; twice {
			return errors.New("sacct: a job name contains text that looks like another job's record")
		}
		names[index] = rec[1]
		return nil
	}, args...)
	if err != nil {
		return nil, err
	}
	return names, nil
}

// records returns the records whose first field is id, or all records if id is empty.
func (c *Client) records(ctx context.Context, field AccountingField, id string, args ...string) ([]Record, error) {
	all, err := c.allocations(ctx, field, nil, id, args...)
	list := make([]Record, len(all))
	for k, a := range all {
		list[k] = a.Record
	}
	return list, err
}

// sacct runs the sacct command and calls f for each record whose first field is id, or for all records if id is empty.
// The output lists each run once, without its steps (-X), includes runs that ended in a requeue (-D), and has the
// separator after every field (-p). The records may have maxOutput bytes in total.
func (c *Client) sacct(
	ctx context.Context, fields []string, id string, f func(rec []string) error, args ...string,
) error {
	sep := newSeparator()
	options := []string{"-D", "-X", "-n", "-p", "--delimiter=" + sep, "-o", strings.Join(fields, ",")}
	room := maxOutput
	parse := func(out io.Reader) error {
		var wrong error
		err := eachRecord(out, sep, len(fields), func(rec [][]byte) error {
			if id != "" && string(rec[0]) != id {
				return nil
			}
			for _, value := range rec {
				room -= len(value) + len(sep)
			}
			if room < 0 {
				wrong = ErrTooLong
			} else {
				wrong = f(detach(rec))
			}
			return wrong
		})
		if err != nil && wrong == nil {
			err = unparsable("sacct", err)
		}
		return err
	}
	return ofAccounting(c.stream(ctx, nil, parse, c.sacctPath, slices.Concat(c.whose, options, args)...))
}

// uts formats a time so that Slurm's commands read it the same way in every time zone. The commands reject values below
// a million seconds (22.05.8).
func uts(t time.Time) string {
	return "uts" + strconv.FormatInt(max(t.Unix(), 1e6), 10)
}

// ofAccounting turns an accounting command's ErrUnreachable into ErrNoAccounting.
func ofAccounting(err error) error {
	var e *CommandError
	if errors.As(err, &e) && errors.Is(e.Err, ErrUnreachable) {
		e.Err = ErrNoAccounting
	}
	return err
}

// textMost is the size of the column in bytes. MariaDB silently truncates longer text (22.05.8).
const textMost = 65535

// SetAccounting writes a field of a job's newest accounting record. The run must have ended, because slurmctld rewrites
// AdminComment at that point (22.05.8). sacctmgr cannot change the job's older records. The call takes about 0.3 s.
// SetAccounting returns ErrJobState if the run has not ended, ErrSpoils if sacctmgr would alter words that belong to
// other tools, and ErrNoAccounting if slurmdbd did not answer.
func (c *Client) SetAccounting(ctx context.Context, r Record, field AccountingField, text string) error {
	if !slices.Contains(AccountingFields, field) {
		return unknownField(field)
	}
	if !recordRef.MatchString(r.Ref) {
		return fmt.Errorf("job %d: %.40q is not a job id that sacctmgr accepts", r.ID, r.Ref)
	}
	if r.End.IsZero() {
		return fmt.Errorf("job %s is %s: %w", r.Ref, r.State, ErrJobState)
	}
	if strings.ContainsRune(text, 0) || len(text) > textMost {
		return fmt.Errorf("job %s: couldn't write %s: the text (%d bytes) is too long or contains a NUL", r.Ref, field,
			len(text))
	}
	if err := c.spoils(ctx, text); err != nil {
		return fmt.Errorf("job %s, %s: %w", r.Ref, field, err)
	}
	_, err := c.run(ctx, nil, c.sacctmgr, "-i", "modify", "job", "where", "jobid="+r.Ref, "set", string(field)+"="+text)
	return ofAccounting(err)
}

// recordRef matches the names that sacctmgr resolves to exactly one record. It excludes the id of an array, which
// stands for all tasks, and the id of a het job, which stands for all components (22.05.8).
var recordRef = regexp.MustCompile(`^[0-9]+([_+][0-9]+)?$`)

const capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// spoils returns ErrSpoils if sacctmgr would alter words that belong to other tools. It queries sacctmgr's release only
// if the answer depends on it.
func (c *Client) spoils(ctx context.Context, text string) error {
	lower := false // true if sacctmgr might convert a word to lower case
	for _, word := range strings.Fields(text) {
		if strings.HasPrefix(word, "caelum:") {
			continue
		}
		if strings.ContainsAny(word, "'\"") {
			return ErrSpoils
		}
		lower = lower || strings.ContainsAny(word, capitals)
	}
	if !lower {
		return nil
	}
	release, err := c.releaseOf(ctx, c.sacctmgr)
	if err != nil {
		return ofAccounting(err)
	}
	if !release.KeepsCase() {
		return ErrSpoils
	}
	return nil
}
