// Package decisions reads the decision table, in which job_submit.lua looks up what a job is given. The form is in
// docs/internals.md ("The decision table"); contrib/job_submit.lua reads the same, refuses the same and gives the same
// reasons, and contrib/job_submit's FuzzTable holds the two against each other.
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

// The bounds are job_submit.lua's: slurmctld waits while it reads.
const (
	MaxLines = 20000
	MaxBytes = 1 << 20
	maxHead  = 64 // bytes of the first line, with its end
)

// Table is a decision table.
type Table struct {
	Partitions []string // whose jobs are given slices
	Profiles   []Profile
	Default    string // profile of a job of which nothing is known
	Whole      string // profile of a whole GPU
	// Models are the profiles that a model of GPU has, by its Type in gres.conf, smallest first.
	Models   map[string][]string
	MaxNodes int // the number of catalogue nodes
	// What earlier runs have taught, by "<user id>:<key>", by "<user id>:<work>", and by work.
	Key, User, Site map[string]Learned
	// OldKeys counts key lines without a user, as earlier releases wrote them: they have no effect.
	OldKeys int
}

// Profile is one that may be asked for by name.
type Profile struct {
	Name string
	MiB  int // memory of an instance; 0: not known
}

// Learned is what a piece of work needs.
type Learned struct {
	Profile string
	Seconds int // that it is expected to run; 0: not known
}

var (
	headForm    = regexp.MustCompile(`^caelum-decisions 1 [0-9]+\n`)
	numberForm  = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
	profileForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	nodesForm   = regexp.MustCompile(`^[0-9]{1,4}$`)
	workForm    = regexp.MustCompile(`^[0-9a-f]{16}$`)
	userForm    = regexp.MustCompile(`^(0|[1-9][0-9]*):[0-9a-f]{16}$`)
)

// Names are those of the profiles, in the table's order.
func (t Table) Names() (names []string) {
	for _, p := range t.Profiles {
		names = append(names, p.Name)
	}
	return names
}

// Parse reads a table. The error says what job_submit.lua has against it, in the words of slurmctld's log.
func Parse(text string) (Table, error) {
	head, _, _ := strings.Cut(text[:min(len(text), maxHead)], "\n")
	switch {
	case headForm.MatchString(text[:min(len(text), maxHead)]):
	case strings.Contains(head, "\r"):
		return Table{}, errors.New("its lines end with CR LF, and with LF they should")
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
			return Table{}, fmt.Errorf("line %d is not understood", n)
		}
	}
	return r.whole()
}

// blank is C's isspace, as Lua has it.
func blank(r rune) bool { return strings.ContainsRune(" \t\n\v\f\r", r) }

// reader is a table that is being read.
type reader struct {
	Table
	named map[string]int // the first line that names a profile which should be listed
}

// understand takes a line; false: it says nothing that a table can say.
func (r *reader) understand(n int, words []string) bool {
	if len(words) < 2 {
		return false
	}
	value, rest := words[1], words[2:]
	switch words[0] {
	case "key":
		if workForm.MatchString(value) {
			r.OldKeys++
			return r.learn(n, map[string]Learned{}, workForm, value, rest)
		}
		return r.learn(n, r.Key, userForm, value, rest)
	case "user":
		return r.learn(n, r.User, userForm, value, rest)
	case "site":
		return r.learn(n, r.Site, workForm, value, rest)
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

// learn takes "<profile> [seconds]" for a piece of work.
func (r *reader) learn(n int, lines map[string]Learned, form *regexp.Regexp, work string, rest []string) bool {
	if _, twice := lines[work]; twice || !form.MatchString(work) || len(rest) < 1 || len(rest) > 2 {
		return false
	}
	l := Learned{Profile: rest[0]}
	if len(rest) == 2 && !positive(rest[1], &l.Seconds) {
		return false
	}
	lines[work] = l
	r.note(n, l.Profile)
	return true
}

// list takes a profile that may be asked for. Two GPU models may call as many MiB the same: the least is what a job
// surely has.
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

// name takes a profile that may be named once.
func (r *reader) name(n int, what *string, profile string) bool {
	if *what != "" {
		return false
	}
	*what = profile
	r.note(n, profile)
	return true
}

func (r *reader) note(n int, profile string) {
	if r.named[profile] == 0 {
		r.named[profile] = n
	}
}

// whole is the table, at its end.
func (r *reader) whole() (Table, error) {
	if r.Default == "" {
		return Table{}, errors.New("it names no default")
	}
	for _, p := range r.Profiles {
		delete(r.named, p.Name)
	}
	wrong := math.MaxInt
	for _, n := range r.named {
		wrong = min(wrong, n)
	}
	if len(r.named) > 0 {
		return Table{}, fmt.Errorf("the profile of line %d is not one of its profiles", wrong)
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
