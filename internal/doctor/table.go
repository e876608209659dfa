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

// Table is the decision table's file on this host.
type Table struct {
	decisions.Table
	Path  string
	Mode  fs.FileMode
	Owner uint32
	// Problem is the reason for which job_submit.lua rejects the table; empty if it is accepted.
	Problem string
}

func readTable(path string) (Table, error) {
	// The remedies replace the file at this path. They must not replace a link to the table that the watcher writes.
	path, err := filepath.EvalSymlinks(path)
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

// readableBy reports whether slurmctld can read the file as this user: the user is root, owns a file that its owner can
// read, or the file is readable by all users.
func (t Table) readableBy(name string) bool {
	if t.Mode.Perm()&0o004 != 0 {
		return true
	}
	u, err := user.Lookup(name)
	return err == nil && (u.Uid == "0" || u.Uid == strconv.Itoa(int(t.Owner)) && t.Mode.Perm()&0o400 != 0)
}

const changeTable = "correct a copy of the table, raise its generation, and `mv` the copy over "

func decisionTable(f *Facts) []Finding {
	t := f.Table
	slurmUser, _, _ := strings.Cut(f.Config.Values["SlurmUser"], "(") // "slurm(64030)"
	switch {
	case t.Problem != "":
		return []Finding{
			fault(
				t.Path+": "+t.Problem+": job_submit.lua keeps the last good table, and refuses every request for GPUs "+
					"after slurmctld restarts",
				changeTable+t.Path,
			),
		}
	case !t.readableBy(slurmUser):
		return []Finding{
			fault(
				fmt.Sprintf(
					"slurmctld runs as %s and cannot read %s (mode %04o)",
					slurmUser,
					t.Path,
					t.Mode.Perm(),
				),
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
				warning(
					fmt.Sprintf("%s names the partition %s, which slurm.conf does not have", t.Path, p),
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
		case size == 0 && slices.Contains(f.Node.Partitions, p): // the catalogue check reports this
		case size == 0:
			found = append(
				found,
				fault(
					fmt.Sprintf(
						"partition %s of %s has no catalogue node: jobs whose slice is not on offer at their "+
							"submission are refused",
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
						"max_nodes is %d in %s and partition %s has %d catalogue nodes: jobs for more nodes than the "+
							"catalogue has are refused instead of held",
						t.MaxNodes,
						t.Path,
						p,
						size,
					),
					fmt.Sprintf(
						"%s%s with max_nodes %d, or add catalogue nodes to slurm.conf",
						changeTable,
						t.Path,
						max(size, 1),
					),
				),
			)
		case size > t.MaxNodes:
			found = append(
				found,
				note(
					fmt.Sprintf(
						"max_nodes is %d in %s and partition %s has %d catalogue nodes: jobs for more than %d nodes "+
							"are held first, which is not necessary",
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
	if lacks := difference(t.Names(), served); len(served) > 0 && len(lacks) > 0 {
		found = append(
			found,
			fault(
				fmt.Sprintf(
					"%s lists %s, which no catalogue node of its partitions has: jobs that are given such a slice are "+
						"refused",
					t.Path,
					strings.Join(lacks, ", "),
				),
				renewConfig,
			),
		)
	}
	if lacks := difference(served, t.Names()); len(lacks) > 0 {
		found = append(
			found,
			warning(
				fmt.Sprintf(
					"the catalogue has %s, which %s does not list: jobs that request such a slice by name are refused",
					strings.Join(lacks, ", "),
					t.Path,
				),
				renewConfig,
			),
		)
	}
	if t.OldKeys > 0 {
		found = append(
			found,
			warning(
				fmt.Sprintf(
					"%s has %d key lines without a user ID, which have no effect: a key applies to one user only",
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
			warning(
				t.Path+" does not say how much memory profiles have: jobs with --mig-mem are refused",
				"take the profile lines from `caelum slurm-config --section decisions`; "+changeTable+t.Path,
			),
		)
	}
	return found
}
