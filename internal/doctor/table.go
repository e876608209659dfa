package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"caelum/internal/decisions"
	"caelum/internal/slurm"
)

// Table is the decision table, as it lies on this host.
type Table struct {
	decisions.Table
	Path  string
	Mode  fs.FileMode
	Owner uint32
	// Problem is why job_submit.lua does not read it.
	Problem string
}

func readTable(path string) (Table, error) {
	path, err := filepath.EvalSymlinks(path) // to replace the link would take the table from the watcher
	if err != nil {
		return Table{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Table{}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Table{}, err
	}
	t := Table{Path: path, Mode: info.Mode(), Owner: info.Sys().(*syscall.Stat_t).Uid}
	if t.Table, err = decisions.Parse(string(text)); err != nil {
		t.Problem = err.Error()
	}
	return t, nil
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
		return []Finding{
			fault(
				t.Path+": "+t.Problem+": job_submit.lua keeps the last good one, and refuses every request for GPUs once slurmctld restarts",
				changeTable+t.Path,
			),
		}
	case !t.readableBy(who):
		return []Finding{
			fault(
				fmt.Sprintf("%s has mode %04o and slurmctld runs as %s: it cannot read it", t.Path, t.Mode.Perm(), who),
				"`chmod 644 "+t.Path+"`",
			),
		}
	case len(t.Partitions) == 0:
		return []Finding{fault(t.Path+" names no partition: no job gets a slice", changeTable+t.Path)}
	}
	var found []Finding
	var served []string
	for _, p := range t.Partitions {
		if !slices.ContainsFunc(f.Partitions, func(has slurm.Partition) bool { return has.Name == p }) {
			found = append(
				found,
				concern(
					fmt.Sprintf("%s has the partition %s, which slurm.conf has not", t.Path, p),
					changeTable+t.Path,
				),
			)
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
			found = append(
				found,
				fault(
					fmt.Sprintf(
						"partition %s of %s has no catalogue node: jobs whose slice is not on offer at their submission are refused",
						p,
						t.Path,
					),
					"add the catalogue nodes to the partition's Nodes= in slurm.conf"+reconfigure,
				),
			)
		case size < t.MaxNodes:
			found = append(
				found,
				fault(
					fmt.Sprintf(
						"max_nodes is %d in %s and partition %s has %d catalogue nodes: jobs for more nodes than that are refused instead of held",
						t.MaxNodes,
						t.Path,
						p,
						size,
					),
					fmt.Sprintf(
						"max_nodes %d, or more catalogue nodes in slurm.conf; %s%s",
						max(size, 1),
						changeTable,
						t.Path,
					),
				),
			)
		case size > t.MaxNodes:
			found = append(
				found,
				note(
					fmt.Sprintf(
						"max_nodes is %d in %s and partition %s has %d catalogue nodes: jobs for more nodes than %d are held first, which they need not be",
						t.MaxNodes,
						t.Path,
						p,
						size,
						t.MaxNodes,
					),
				),
			)
		}
	}
	slices.Sort(served)
	served = slices.Compact(served)
	if lacks := without(t.Names(), served); len(served) > 0 && len(lacks) > 0 {
		found = append(
			found,
			fault(
				fmt.Sprintf(
					"%s has %s, and no catalogue node of its partitions has: jobs that get that are refused",
					t.Path,
					strings.Join(lacks, ", "),
				),
				again,
			),
		)
	}
	if lacks := without(served, t.Names()); len(lacks) > 0 {
		found = append(
			found,
			concern(
				fmt.Sprintf(
					"the catalogue has %s, and %s has not: jobs that ask for that by name are refused",
					strings.Join(lacks, ", "),
					t.Path,
				),
				again,
			),
		)
	}
	if t.OldKeys > 0 {
		found = append(
			found,
			concern(
				fmt.Sprintf(
					"%s has %d key lines without a user, which have no effect: a key counts for its user only",
					t.Path,
					t.OldKeys,
				),
				"write them as `key <user id>:<key> <profile>`, or let `caelum repo decisions` write the table",
			),
		)
	}
	if !slices.ContainsFunc(t.Profiles, func(p decisions.Profile) bool { return p.MiB > 0 }) {
		found = append(
			found,
			concern(
				t.Path+" does not say how much memory profiles have: jobs with --mig-mem are refused",
				"put its profile lines as `caelum slurm-config --section decisions` prints them; "+changeTable+t.Path,
			),
		)
	}
	return found
}
