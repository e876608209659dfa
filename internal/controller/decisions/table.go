package decisions

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/predict"
)

// MaxLines and MaxBytes limit the size of a table. job_submit.lua has the same limits. They exist because slurmctld
// waits while job_submit.lua reads the table.
const (
	MaxLines = 20000
	MaxBytes = 1 << 20
	maxHead  = 64 // bytes of the first line, including the newline
)

// Table is the content of a decision table.
type Table struct {
	Partitions []string // the partitions whose jobs are given slices
	// Full maps a partition to its profile for jobs that request several GPUs, if it has one.
	Full map[string]string
	// Grow is the mode in which jobs grow by default: off, oom or forecast. GrowIn holds the mode of each partition
	// that has its own. Mode combines both.
	Grow     string
	GrowIn   map[string]string
	Profiles []Profile
	Default  string // the profile for a job without earlier runs
	Whole    string // the profile of a whole GPU
	// Models holds the profiles of each GPU model, smallest first. Its keys are the models' Types in gres.conf.
	Models map[string][]string
	// Units maps a fraction of a GPU without MIG (mig.Fractions) to the number of units of the whole GPU, if the table
	// states it. The CPUs and memory of PerGPU are divided by it.
	Units map[string]int
	// Aliases maps GPU types that do not state a profile, such as a100_10g, to the profile that they stand for.
	Aliases map[string]string
	// Shards holds the profiles of jobs that request shards (gres/shard), by GPU type, which may be empty, and by the
	// largest number of shards for which the profile suffices.
	Shards map[string]map[int]string
	// PerGPU holds the CPUs and memory that come with a whole GPU, by partition. Slices get a share of them.
	PerGPU   map[string]PerGPU
	MaxNodes int // the number of catalogue nodes
	MaxCPUs  int // the largest number of CPUs of a node, or 0 if unknown
	// Bypass is the unmanaged partition to which new jobs that request GPUs are sent, or empty if these jobs are given
	// slices.
	Bypass string
	// Key, User and Site hold the predictions from earlier runs. Key is indexed by "<user id>:<job key>", User by
	// "<user id>:<script fingerprint>", and Site by script fingerprint. Name and Owner hold the predictions for scripts
	// without runs. Name is indexed by "<user id>:<predict.NameHash of the job name>", and Owner by user id.
	Key, User, Site, Name, Owner map[string]predict.Line
	// Args holds the profiles of jobs whose needs follow a number in the arguments of their scripts. It is indexed by
	// "<user id>:<job key>". Its profiles replace those of the other fields.
	Args map[string]predict.Steps
	// OldKeys is the number of key lines without a user id, which earlier releases wrote (IgnoredKeys).
	OldKeys int
}

// Profile is a profile that jobs can request by name.
type Profile struct {
	Name string
	MiB  int // memory of an instance, or 0 if unknown
	Most int // the largest number of its instances on a node, or 0 if unknown
}

// PerGPU is what a job gets for each whole GPU if it requests none, or 0 if Slurm's own default applies.
type PerGPU struct{ CPUs, MiB int }

var (
	headForm     = regexp.MustCompile(`^caelum-decisions 1 [0-9]+\n`)
	numberForm   = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
	shardForm    = regexp.MustCompile(`^(?:([A-Za-z][^:]*):)?([1-9][0-9]{0,8})$`)
	percentForm  = regexp.MustCompile(`^(0|[1-9][0-9]?|100)$`)
	profileForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	growForm     = regexp.MustCompile(`^(off|oom|forecast)$`)
	nodesForm    = regexp.MustCompile(`^[0-9]{1,4}$`)
	hashForm     = regexp.MustCompile(`^[0-9a-f]{16}$`)
	userForm     = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	userHashForm = regexp.MustCompile(`^(0|[1-9][0-9]*):[0-9a-f]{16}$`)
)

// Names returns the names of the profiles in the order of the table.
func (t Table) Names() (names []string) {
	for _, p := range t.Profiles {
		names = append(names, p.Name)
	}
	return names
}

// Alternatives returns the profiles that a job can request instead of a given profile because of its time limit. The
// argument model is the GPU model that the request names, or empty if it names none. If the table has model lines for
// that model, the result consists of the profiles in these lines. Otherwise, it consists of the profiles of all GPU
// models that have the given profile, or all profiles if no model has it.
func (t Table) Alternatives(model, profile string) (all []string) {
	if of, ok := t.Models[model]; ok {
		return of
	}
	for _, of := range t.Models {
		if slices.Contains(of, profile) {
			all = append(all, of...)
		}
	}
	if len(all) == 0 {
		return t.Names()
	}
	return all
}

// Mode returns the mode in which the jobs of a partition grow: off, oom or forecast.
func (t Table) Mode(partition string) string { return cmp.Or(t.GrowIn[partition], t.Grow, "off") }

// IgnoredKeys returns the warning about key lines without a user id, and its remedy. Both are empty if there are no
// such lines. job_submit.lua logs the same messages.
func (t Table) IgnoredKeys() (warning, remedy string) {
	lines := "1 key line"
	switch {
	case t.OldKeys == 0:
		return "", ""
	case t.OldKeys > 1:
		lines = strconv.Itoa(t.OldKeys) + " key lines"
	}
	return "ignored " + lines + " because of a missing user id",
		"write key <user id>:<key> <profile>, or run `caelum repo decisions`, which rewrites all learned lines"
}

// Parse parses a table. If the table is invalid, the error is the reason that job_submit.lua writes to slurmctld's
// log.
func Parse(text string) (Table, error) {
	if err := form(text); err != nil {
		return Table{}, err
	}
	r := newReader()
	n := 0
	for line := range strings.Lines(text) {
		if n++; n > MaxLines {
			return Table{}, fmt.Errorf("the table has more than %d lines", MaxLines)
		}
		if n > 1 && !r.read(n, line) {
			return Table{}, fmt.Errorf("line %d is not valid", n)
		}
	}
	return r.whole()
}

// form returns an error if the first line, the size or the end of the table is invalid.
func form(text string) error {
	head, _, _ := strings.Cut(text[:min(len(text), maxHead)], "\n")
	switch {
	case headForm.MatchString(text[:min(len(text), maxHead)]):
	case strings.Contains(head, "\r"):
		return errors.New("the lines must end with LF, not with CR LF")
	default:
		return errors.New("the first line is not \"caelum-decisions 1 <generation>\"")
	}
	switch {
	case len(text) > MaxBytes:
		return fmt.Errorf("the table is longer than %d bytes", MaxBytes)
	case !strings.HasSuffix(text, "\n"):
		return errors.New("the last line is not complete")
	}
	return nil
}

func newReader() reader {
	return reader{
		Table: Table{
			MaxNodes: -1,
			Models:   map[string][]string{},
			Units:    map[string]int{},
			Aliases:  map[string]string{},
			Shards:   map[string]map[int]string{},
			PerGPU:   map[string]PerGPU{},
			Full:     map[string]string{},
			GrowIn:   map[string]string{},
			Key:      map[string]predict.Line{},
			User:     map[string]predict.Line{},
			Site:     map[string]predict.Line{},
			Name:     map[string]predict.Line{},
			Owner:    map[string]predict.Line{},
			Args:     map[string]predict.Steps{},
		},
		named: map[string]int{},
	}
}

// blank reports whether r is white space according to C's isspace, which Lua uses.
func blank(r rune) bool { return strings.ContainsRune(" \t\n\v\f\r", r) }

// reader is the state of the parser.
type reader struct {
	Table
	named map[string]int // for each profile that needs a profile line, the first line that names it
	// bypass is the number of the bypass line, or 0 if there is none.
	bypass      int
	sizeMessage string // the value of the size_message line, or empty if there is none
}

// read parses line n, which may contain a comment. It returns false if the line is invalid.
func (r *reader) read(n int, line string) bool {
	line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "#")
	words := strings.FieldsFunc(line, blank)
	return len(words) == 0 || !blank(rune(line[0])) && r.understand(n, words)
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
			return r.learn(n, map[string]predict.Line{}, hashForm, value, rest)
		}
		return r.learn(n, r.Key, userHashForm, value, rest)
	case "user":
		return r.learn(n, r.User, userHashForm, value, rest)
	case "site":
		return r.learn(n, r.Site, hashForm, value, rest)
	case "name":
		return r.learn(n, r.Name, userHashForm, value, rest)
	case "owner":
		return r.learn(n, r.Owner, userForm, value, rest)
	case "args":
		return r.args(n, value, rest)
	case "profile":
		return r.list(value, rest)
	case "model":
		return r.model(n, value, rest)
	case "alias":
		return r.alias(n, value, rest)
	case "shard":
		return r.shard(n, value, rest)
	case "per_gpu":
		return r.perGPU(value, rest)
	case "partition":
		return r.partition(n, value, rest)
	}
	return len(rest) == 0 && r.single(n, words[0], value)
}

// single parses line n, which consists of a word and a value and may occur only once in a table.
func (r *reader) single(n int, word, value string) bool {
	switch word {
	case "default":
		return r.name(n, &r.Default, value)
	case "whole":
		return r.name(n, &r.Whole, value)
	case "grow":
		if r.Grow != "" || !growForm.MatchString(value) {
			return false
		}
		r.Grow = value
	case "max_nodes":
		if r.MaxNodes >= 0 || !nodesForm.MatchString(value) {
			return false
		}
		r.MaxNodes, _ = strconv.Atoi(value)
	case "max_cpus":
		n := 0
		ok := positive(value, &n)
		r.MaxCPUs = max(r.MaxCPUs, n)
		return ok
	case "size_message":
		if r.sizeMessage != "" || value != "on" && value != "off" {
			return false
		}
		r.sizeMessage = value
	case "bypass":
		if r.bypass > 0 || strings.Contains(value, ",") {
			return false
		}
		if r.bypass = n; value != "off" {
			r.Bypass = value
		}
	default:
		return false
	}
	return true
}

// perGPU parses the rest of a per_gpu line, which consists of the numbers of CPUs and of MiB.
func (r *reader) perGPU(partition string, rest []string) bool {
	amount := func(text string, n *int) bool { return text == "0" || positive(text, n) }
	var own PerGPU
	if _, twice := r.PerGPU[partition]; twice || len(rest) != 2 || !amount(rest[0], &own.CPUs) ||
		!amount(rest[1], &own.MiB) {
		return false
	}
	r.PerGPU[partition] = own
	return true
}

// model parses the rest of a model line, which has the form "<profile> [units]".
func (r *reader) model(n int, kind string, rest []string) bool {
	units := 0
	if len(rest) == 0 || len(rest) > 2 || len(rest) > 1 && !positive(rest[1], &units) {
		return false
	}
	r.Models[kind] = append(r.Models[kind], rest[0])
	if units > r.Units[rest[0]] {
		r.Units[rest[0]] = units
	}
	r.note(n, rest[0])
	return true
}

// alias parses the rest of an alias line, which consists of a profile.
func (r *reader) alias(n int, kind string, rest []string) bool {
	if _, twice := r.Aliases[kind]; twice || len(rest) != 1 {
		return false
	}
	r.Aliases[kind] = rest[0]
	r.note(n, rest[0])
	return true
}

// shard parses a shard line after its first word. The line has the form "shard [type:]count profile".
func (r *reader) shard(n int, value string, rest []string) bool {
	m := shardForm.FindStringSubmatch(value)
	if m == nil || len(rest) != 1 {
		return false
	}
	count, _ := strconv.Atoi(m[2])
	if r.Shards[m[1]] == nil {
		r.Shards[m[1]] = map[int]string{}
	}
	if r.Shards[m[1]][count] != "" {
		return false
	}
	r.Shards[m[1]][count] = rest[0]
	r.note(n, rest[0])
	return true
}

// partition parses the rest of a partition line, which has the form "[profile] [grow=mode]".
func (r *reader) partition(n int, name string, rest []string) bool {
	if k := len(rest) - 1; k >= 0 {
		if mode, ok := strings.CutPrefix(rest[k], "grow="); ok {
			if !growForm.MatchString(mode) {
				return false
			}
			r.GrowIn[name], rest = mode, rest[:k]
		}
	}
	if len(rest) > 1 {
		return false
	}
	r.Partitions = append(r.Partitions, name)
	delete(r.Full, name) // the last line for a partition applies
	if len(rest) > 0 {
		r.Full[name] = rest[0]
		r.note(n, rest[0])
	}
	return true
}

// learn parses the rest of a learned line after its second word, id. The rest has the form "<profile> [seconds[-high]
// [busy]]".
func (r *reader) learn(n int, lines map[string]predict.Line, form *regexp.Regexp, id string, rest []string) bool {
	if _, twice := lines[id]; twice || !form.MatchString(id) || len(rest) < 1 || len(rest) > 3 {
		return false
	}
	l := predict.Line{Profile: rest[0], Busy: -1}
	if len(rest) > 1 && !runTime(rest[1], &l) {
		return false
	}
	if len(rest) > 2 && !percent(rest[2], &l.Busy) {
		return false
	}
	lines[id] = l
	r.note(n, l.Profile)
	return true
}

// args parses the rest of an args line after its second word, id.
func (r *reader) args(n int, id string, rest []string) bool {
	steps, err := predict.ParseSteps(rest)
	if _, twice := r.Args[id]; twice || err != nil || !userHashForm.MatchString(id) {
		return false
	}
	r.Args[id] = steps
	for _, s := range steps.UpTo {
		r.note(n, s.Profile)
	}
	r.note(n, steps.Beyond)
	return true
}

// list parses the rest of a profile line, which has the form "[MiB [most]]". If two GPU models have a profile with the
// same name but different amounts of memory, MiB is the smaller amount, which both models offer. Most is the larger
// number.
func (r *reader) list(name string, rest []string) bool {
	p := Profile{Name: name}
	if !profileForm.MatchString(name) || name == "closed" || len(rest) > 2 ||
		len(rest) > 0 && !positive(rest[0], &p.MiB) || len(rest) > 1 && !positive(rest[1], &p.Most) {
		return false
	}
	i := slices.IndexFunc(r.Profiles, func(has Profile) bool { return has.Name == name })
	if i >= 0 {
		r.Profiles[i].Most = max(r.Profiles[i].Most, p.Most)
	}
	switch {
	case i < 0:
		r.Profiles = append(r.Profiles, p)
	case p.MiB > 0 && (r.Profiles[i].MiB == 0 || p.MiB < r.Profiles[i].MiB):
		r.Profiles[i].MiB = p.MiB
	}
	return true
}

// name sets *to to the profile that line n names. It returns false if an earlier line has already set *to.
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

// whole checks, completes and returns the table once the last line has been read.
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
		return Table{}, fmt.Errorf("line %d names a profile that has no profile line", wrong)
	}
	if slices.Contains(r.Partitions, r.Bypass) {
		return Table{}, fmt.Errorf("line %d sends jobs to a managed partition", r.bypass)
	}
	if r.Whole == "" {
		r.Whole = r.Profiles[len(r.Profiles)-1].Name
	}
	if r.MaxNodes < 0 {
		r.MaxNodes = 1
	}
	return r.Table, nil
}

// runTime parses "<seconds>" or "<seconds>-<high>".
func runTime(text string, l *predict.Line) bool {
	seconds, high, both := strings.Cut(text, "-")
	return positive(seconds, &l.Seconds) && (!both || positive(high, &l.High) && l.High >= l.Seconds)
}

func positive(text string, number *int) bool {
	*number, _ = strconv.Atoi(text)
	return numberForm.MatchString(text)
}

func percent(text string, number *int) bool {
	*number, _ = strconv.Atoi(text)
	return percentForm.MatchString(text)
}
