package decisions

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// These limits are the same as in job_submit.lua, where they are necessary because slurmctld waits while job_submit.lua
// reads the table.
const (
	MaxLines = 20000
	MaxBytes = 1 << 20
	maxHead  = 64 // bytes of the first line, including the newline
)

// Table is the content of a decision table.
type Table struct {
	Partitions []string // the partitions whose jobs get slices
	Profiles   []Profile
	Default    string // the profile of a job without earlier runs
	Whole      string // the profile of a whole GPU
	// Models contains the profiles of each GPU model, from small to large, by the model's Type in gres.conf.
	Models   map[string][]string
	MaxNodes int // the number of catalogue nodes
	// These maps contain the results of earlier runs. The keys of Key are "<user id>:<job key>", those of User are
	// "<user id>:<script fingerprint>", and those of Site are script fingerprints.
	Key, User, Site map[string]Learned
	// OldKeys is the number of key lines without a user id, which earlier releases wrote. Such lines have no effect.
	OldKeys int
}

// Profile is a profile that jobs may request by name.
type Profile struct {
	Name string
	MiB  int // memory of an instance, or 0 if unknown
}

// Learned is the prediction from the earlier runs of a job.
type Learned struct {
	Profile string
	Seconds int // expected run time; 0 if unknown
	// Busy is the share of the job's run time on one compute slice for which the job keeps that slice busy, in percent.
	// It is -1 if unknown.
	Busy int
}

var (
	headForm     = regexp.MustCompile(`^caelum-decisions 1 [0-9]+\n`)
	numberForm   = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
	percentForm  = regexp.MustCompile(`^(0|[1-9][0-9]?|100)$`)
	profileForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	nodesForm    = regexp.MustCompile(`^[0-9]{1,4}$`)
	hashForm     = regexp.MustCompile(`^[0-9a-f]{16}$`)
	userHashForm = regexp.MustCompile(`^(0|[1-9][0-9]*):[0-9a-f]{16}$`)
)

// Names returns the names of the profiles in the order of the table.
func (t Table) Names() (names []string) {
	for _, p := range t.Profiles {
		names = append(names, p.Name)
	}
	return names
}

// Parse parses a table. If the table is invalid, the error is the reason that job_submit.lua writes into slurmctld's
// log.
func Parse(text string) (Table, error) {
	head, _, _ := strings.Cut(text[:min(len(text), maxHead)], "\n")
	switch {
	case headForm.MatchString(text[:min(len(text), maxHead)]):
	case strings.Contains(head, "\r"):
		return Table{}, errors.New("its lines end with CR LF; they must end with LF")
	default:
		return Table{}, errors.New("its first line is not \"caelum-decisions 1 <generation>\"")
	}
	switch {
	case len(text) > MaxBytes:
		return Table{}, fmt.Errorf("longer than %d bytes", MaxBytes)
	case !strings.HasSuffix(text, "\n"):
		return Table{}, errors.New("the last line is not complete")
	}
	r := reader{
		Table: Table{
			MaxNodes: -1,
			Models:   map[string][]string{},
			Key:      map[string]Learned{},
			User:     map[string]Learned{},
			Site:     map[string]Learned{},
		},
		named: map[string]int{},
	}
	n := 0
	for line := range strings.Lines(text) {
		if n++; n > MaxLines {
			return Table{}, fmt.Errorf("more than %d lines", MaxLines)
		}
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "#")
		words := strings.FieldsFunc(line, blank)
		if n > 1 && len(words) > 0 && (blank(rune(line[0])) || !r.understand(n, words)) {
			return Table{}, fmt.Errorf("line %d is not valid", n)
		}
	}
	return r.whole()
}

// blank reports whether r is white space according to C's isspace, which Lua uses.
func blank(r rune) bool { return strings.ContainsRune(" \t\n\v\f\r", r) }

// reader is the state of Parse.
type reader struct {
	Table
	named map[string]int // by profile: the first line that contains it; each of these profiles needs a profile line
}

// understand parses line n of the table. It returns false if the line is invalid.
func (r *reader) understand(n int, words []string) bool {
	if len(words) < 2 {
		return false
	}
	value, rest := words[1], words[2:]
	switch words[0] {
	case "key":
		if hashForm.MatchString(value) {
			r.OldKeys++
			return r.learn(n, map[string]Learned{}, hashForm, value, rest)
		}
		return r.learn(n, r.Key, userHashForm, value, rest)
	case "user":
		return r.learn(n, r.User, userHashForm, value, rest)
	case "site":
		return r.learn(n, r.Site, hashForm, value, rest)
	case "profile":
		return r.list(value, rest)
	case "model":
		if len(rest) != 1 {
			return false
		}
		r.Models[value] = append(r.Models[value], rest[0])
		r.note(n, rest[0])
		return true
	}
	if len(rest) > 0 {
		return false
	}
	switch words[0] {
	case "partition":
		r.Partitions = append(r.Partitions, value)
	case "default":
		return r.name(n, &r.Default, value)
	case "whole":
		return r.name(n, &r.Whole, value)
	case "max_nodes":
		if r.MaxNodes >= 0 || !nodesForm.MatchString(value) {
			return false
		}
		r.MaxNodes, _ = strconv.Atoi(value)
	default:
		return false
	}
	return true
}

// learn parses the rest of a line after its second word, which is id. The rest has the form
// "<profile> [seconds [busy]]".
func (r *reader) learn(n int, lines map[string]Learned, form *regexp.Regexp, id string, rest []string) bool {
	if _, twice := lines[id]; twice || !form.MatchString(id) || len(rest) < 1 || len(rest) > 3 {
		return false
	}
	l := Learned{Profile: rest[0], Busy: -1}
	if len(rest) > 1 && !positive(rest[1], &l.Seconds) {
		return false
	}
	if len(rest) > 2 && !percent(rest[2], &l.Busy) {
		return false
	}
	lines[id] = l
	r.note(n, l.Profile)
	return true
}

// list parses the rest of a profile line. If two GPU models have a profile with the same name but different amounts of
// memory, MiB is the smaller amount, which is available on both models.
func (r *reader) list(name string, rest []string) bool {
	p := Profile{Name: name}
	if !profileForm.MatchString(name) || name == "closed" || len(rest) > 1 ||
		len(rest) == 1 && !positive(rest[0], &p.MiB) {
		return false
	}
	i := slices.IndexFunc(r.Profiles, func(has Profile) bool { return has.Name == name })
	switch {
	case i < 0:
		r.Profiles = append(r.Profiles, p)
	case p.MiB > 0 && (r.Profiles[i].MiB == 0 || p.MiB < r.Profiles[i].MiB):
		r.Profiles[i].MiB = p.MiB
	}
	return true
}

// name sets a profile. It returns false if an earlier line has already set it.
func (r *reader) name(n int, to *string, profile string) bool {
	if *to != "" {
		return false
	}
	*to = profile
	r.note(n, profile)
	return true
}

func (r *reader) note(n int, profile string) {
	if r.named[profile] == 0 {
		r.named[profile] = n
	}
}

// whole checks and completes the table after its last line, and returns it.
func (r *reader) whole() (Table, error) {
	if r.Default == "" {
		return Table{}, errors.New("the default line is missing")
	}
	for _, p := range r.Profiles {
		delete(r.named, p.Name)
	}
	wrong := math.MaxInt
	for _, n := range r.named {
		wrong = min(wrong, n)
	}
	if len(r.named) > 0 {
		return Table{}, fmt.Errorf("line %d names a profile without a profile line", wrong)
	}
	if r.Whole == "" {
		r.Whole = r.Profiles[len(r.Profiles)-1].Name
	}
	if r.MaxNodes < 0 {
		r.MaxNodes = 1
	}
	return r.Table, nil
}

func positive(text string, number *int) bool {
	*number, _ = strconv.Atoi(text)
	return numberForm.MatchString(text)
}

func percent(text string, number *int) bool {
	*number, _ = strconv.Atoi(text)
	return percentForm.MatchString(text)
}
