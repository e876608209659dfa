package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"caelum/internal/slurm"
)

// Table is the decision table (docs/internals.md), as far as it can be compared with slurm.conf.
type Table struct {
	Path       string
	Mode       fs.FileMode
	Owner      uint32
	Partitions []string
	Profiles   []string
	MaxNodes   int
	// Problem is why job_submit.lua does not read it.
	Problem string
}

// The bounds are job_submit.lua's.
const maxTableLines, maxTableBytes = 20000, 1 << 20

var (
	tableHead    = regexp.MustCompile(`^caelum-decisions 1 [0-9]+\n`)
	tableLine    = regexp.MustCompile(`^([a-z][a-z_]*)\s+(\S+)\s*(\S*)\s*$`)
	tableKey     = regexp.MustCompile(`^[0-9a-f]{16}$`)
	tableProfile = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	tableNodes   = regexp.MustCompile(`^[0-9]{1,4}$`)
)

func readTable(path string) (Table, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Table{}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Table{}, err
	}
	t := Table{Path: path, Mode: info.Mode(), Owner: info.Sys().(*syscall.Stat_t).Uid}
	if err := t.parse(string(text)); err != nil {
		t.Problem = err.Error()
	}
	return t, nil
}

// parse follows job_submit.lua, and its errors are worded as there.
func (t *Table) parse(text string) error {
	switch {
	case !tableHead.MatchString(text):
		return errors.New("its first line is not \"caelum-decisions 1 <generation>\"")
	case len(text) > maxTableBytes:
		return fmt.Errorf("longer than %d bytes", maxTableBytes)
	case !strings.HasSuffix(text, "\n"):
		return errors.New("the last line is not complete")
	case strings.Count(text, "\n") > maxTableLines:
		return fmt.Errorf("more than %d lines", maxTableLines)
	}
	var profile string // the default
	keys := map[string]string{}
	t.MaxNodes = 0
	for i, line := range strings.Split(text, "\n")[1:] {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		m := tableLine.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("line %d is not understood", i+2)
		}
		word, value, rest := m[1], m[2], m[3]
		switch {
		case word == "key" && tableKey.MatchString(value) && rest != "" && keys[value] == "":
			keys[value] = rest
		case rest != "":
			return fmt.Errorf("line %d is not understood", i+2)
		case word == "partition":
			t.Partitions = append(t.Partitions, value)
		case word == "profile" && tableProfile.MatchString(value) && value != "closed":
			t.Profiles = append(t.Profiles, value)
		case word == "default" && profile == "":
			profile = value
		case word == "max_nodes" && t.MaxNodes == 0 && tableNodes.MatchString(value):
			t.MaxNodes, _ = strconv.Atoi(value)
		default:
			return fmt.Errorf("line %d is not understood", i+2)
		}
	}
	t.MaxNodes = max(t.MaxNodes, 1)
	switch {
	case profile == "":
		return errors.New("it names no default")
	case !slices.Contains(t.Profiles, profile):
		return errors.New("its default is not one of its profiles")
	}
	for key, p := range keys {
		if !slices.Contains(t.Profiles, p) {
			return fmt.Errorf("the profile of key %s is not one of its profiles", key)
		}
	}
	return nil
}

// readableBy reports whether the user that slurmctld runs as can read the file, by its owner or for everybody.
func (t Table) readableBy(name string) bool {
	if t.Mode.Perm()&0o004 != 0 {
		return true
	}
	u, err := user.Lookup(name)
	return err == nil && (u.Uid == "0" || u.Uid == strconv.Itoa(int(t.Owner)) && t.Mode.Perm()&0o400 != 0)
}

const changeTable = "correct it in a new file with a higher generation, and `mv` that over "

func decisionTable(f *Facts) []Finding {
	t := f.Table
	who, _, _ := strings.Cut(f.Config.Values["SlurmUser"], "(") // "slurm(64030)"
	switch {
	case t.Problem != "":
		return []Finding{fault(t.Path+": "+t.Problem+": job_submit.lua keeps the last good one, and refuses every request for GPUs once slurmctld restarts", changeTable+t.Path)}
	case !t.readableBy(who):
		return []Finding{fault(fmt.Sprintf("%s has mode %04o and slurmctld runs as %s: it cannot read it", t.Path, t.Mode.Perm(), who), "`chmod 644 "+t.Path+"`")}
	case len(t.Partitions) == 0:
		return []Finding{fault(t.Path+" names no partition: no job gets a slice", changeTable+t.Path)}
	}
	var found []Finding
	var served []string
	for _, p := range t.Partitions {
		if !slices.ContainsFunc(f.Partitions, func(has slurm.Partition) bool { return has.Name == p }) {
			found = append(found, concern(fmt.Sprintf("%s has the partition %s, which slurm.conf has not", t.Path, p), changeTable+t.Path))
			continue
		}
		size := 0
		for _, n := range f.Nodes {
			if f.isCatalogue(n) && slices.Contains(n.Partitions, p) {
				size++
				served = append(served, types(n)...)
			}
		}
		switch {
		case size == 0 && slices.Contains(f.Node.Partitions, p): // the check of the catalogue says so
		case size == 0:
			found = append(found, fault(fmt.Sprintf("partition %s of %s has no catalogue node: jobs whose slice is not on offer at their submission are refused", p, t.Path),
				"add the catalogue nodes to the partition's Nodes= in slurm.conf"+reconfigure))
		case size < t.MaxNodes:
			found = append(found, fault(fmt.Sprintf("max_nodes is %d in %s and partition %s has %d catalogue nodes: jobs for more nodes than that are refused instead of held", t.MaxNodes, t.Path, p, size),
				fmt.Sprintf("max_nodes %d, or more catalogue nodes in slurm.conf; %s%s", max(size, 1), changeTable, t.Path)))
		case size > t.MaxNodes:
			found = append(found, note(fmt.Sprintf("max_nodes is %d in %s and partition %s has %d catalogue nodes: jobs for more nodes than %d are held first, which they need not be", t.MaxNodes, t.Path, p, size, t.MaxNodes)))
		}
	}
	slices.Sort(served)
	served = slices.Compact(served)
	if lacks := without(t.Profiles, served); len(served) > 0 && len(lacks) > 0 {
		found = append(found, fault(fmt.Sprintf("%s has %s, and no catalogue node of its partitions has: jobs that get that are refused", t.Path, strings.Join(lacks, ", ")), again))
	}
	if lacks := without(served, t.Profiles); len(lacks) > 0 {
		found = append(found, concern(fmt.Sprintf("the catalogue has %s, and %s has not: jobs that ask for that by name are refused", strings.Join(lacks, ", "), t.Path), again))
	}
	return found
}
