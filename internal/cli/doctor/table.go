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

	"caelum/internal/controller/decisions"
	"caelum/internal/slurm"
)

// Table describes the decision table's file on this host and its contents.
type Table struct {
	decisions.Table
	Path  string
	Mode  fs.FileMode
	Owner uint32
	// Folder is the owner of the directory.
	Folder uint32
	// Problem explains why job_submit.lua rejects the table. It is empty if the table is accepted.
	Problem string
}

func readTable(path string) (Table, error) {
	// The remedies replace the file at t.Path. They must not replace a symbolic link to the table that the watcher
	// writes.
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
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return Table{}, err
	}
	t.Folder = folder.Sys().(*syscall.Stat_t).Uid
	if t.Table, err = decisions.Parse(string(text)); err != nil {
		t.Problem = err.Error()
	}
	return t, nil
}

// readableBy reports whether slurmctld, running as the user with the given name, can read the file. This is the case if
// the user is root, if the user owns the file and the mode allows the owner to read it, or if the mode allows all users
// to read it. Read access for the group is ignored.
func (t Table) readableBy(name string) bool {
	if t.Mode.Perm()&0o004 != 0 {
		return true
	}
	u, err := user.Lookup(name)
	return err == nil && (u.Uid == "0" || u.Uid == strconv.Itoa(int(t.Owner)) && t.Mode.Perm()&0o400 != 0)
}

const changeTable = "correct a copy of the table, increment its generation, and move the copy over "

func decisionTable(f *Facts) []Finding {
	t := f.Table
	slurmUser, _, _ := strings.Cut(f.Config.Values["SlurmUser"], "(") // for example "slurm(64030)"
	if found := t.unusable(slurmUser); found != nil {
		return found
	}
	var found []Finding
	var served []string // the profiles of the catalogue nodes in the table's partitions
	for _, p := range t.Partitions {
		nodes := 0
		for _, n := range f.Nodes {
			if f.isCatalogue(n) && slices.Contains(n.Partitions, p) {
				nodes++
				served = append(served, types(n)...)
			}
		}
		found = append(found, f.tablePartition(p, nodes)...)
	}
	slices.Sort(served)
	found = append(found, t.compareProfiles(slices.Compact(served))...)
	found = append(found, f.bypass()...)
	if text, remedy := t.IgnoredKeys(); text != "" {
		found = append(found, warning(t.Path+": job_submit.lua "+text, remedy))
	}
	if !slices.ContainsFunc(t.Profiles, func(p decisions.Profile) bool { return p.MiB > 0 }) {
		found = append(found, warning(
			t.Path+" does not list the memory size of any profile: job_submit.lua rejects jobs with --mig-mem",
			"use the profile lines of `caelum slurm-config --section decisions`: "+changeTable+t.Path,
		))
	}
	return found
}

// unusable reports a table that prevents all jobs from being assigned slices.
func (t Table) unusable(slurmUser string) []Finding {
	switch {
	case t.Problem != "":
		return []Finding{fault(
			t.Path+": "+t.Problem+": job_submit.lua uses the last valid table until slurmctld restarts, and will then "+
				"refuse every GPU request",
			changeTable+t.Path,
		)}
	case !t.readableBy(slurmUser):
		return []Finding{fault(
			fmt.Sprintf("slurmctld runs as %s and cannot read %s (mode %04o): job_submit.lua cannot use the table",
				slurmUser, t.Path, t.Mode.Perm()),
			"run `chmod 644 "+t.Path+"`",
		)}
	case len(t.Partitions) == 0:
		return []Finding{fault(t.Path+" names no partition: no job gets a slice", changeTable+t.Path)}
	}
	return nil
}

// tablePartition compares a partition in the table with slurm.conf, and max_nodes with the number of catalogue nodes in
// the partition.
func (f *Facts) tablePartition(name string, nodes int) []Finding {
	t := f.Table
	sizes := fmt.Sprintf("max_nodes is %d in %s, but the number of catalogue nodes in partition %s is %d: ",
		t.MaxNodes, t.Path, name, nodes)
	switch {
	case !slices.ContainsFunc(f.Partitions, func(p slurm.Partition) bool { return p.Name == name }):
		return []Finding{warning(
			fmt.Sprintf("%s names the partition %s, which is not in slurm.conf, so jobs in the intended partition "+
				"may get no slices", t.Path, name),
			changeTable+t.Path,
		)}
	case nodes == 0 && slices.Contains(f.Node.Partitions, name): // the "catalogue" check reports this fault
		return nil
	case nodes == 0:
		return []Finding{fault(
			fmt.Sprintf("partition %s of %s has no catalogue node: slurmctld rejects jobs whose slice is not on offer "+
				"when they are submitted", name, t.Path),
			"add the catalogue nodes to the partition's Nodes= in slurm.conf"+reconfigure,
		)}
	case nodes < t.MaxNodes:
		return []Finding{fault(
			sizes+"slurmctld rejects jobs that request more nodes than the catalogue has, instead of holding them",
			fmt.Sprintf("set max_nodes to %d: %s%s; or add catalogue nodes to slurm.conf", nodes, changeTable, t.Path),
		)}
	case nodes > t.MaxNodes:
		return []Finding{note(sizes + "job_submit.lua holds jobs that request more than max_nodes nodes, which is " +
			"not necessary")}
	}
	return nil
}

// unlistedPartitions reports the partitions with managed nodes that the table does not list.
func unlistedPartitions(f *Facts) []Finding {
	if f.Table.Problem != "" || len(f.Table.Partitions) == 0 {
		return []Finding{note("the partitions were not compared with the decision table, because it is not valid or " +
			"lists no partition")}
	}
	var names []string
	for _, p := range f.Partitions {
		has := func(n slurm.Node) bool { return n.Managed() && slices.Contains(n.Partitions, p.Name) }
		listed := p.Name == f.Table.Bypass || slices.Contains(f.Table.Partitions, p.Name)
		if !listed && slices.ContainsFunc(f.Nodes, has) {
			names = append(names, p.Name)
		}
	}
	return findingIf(
		warning(
			fmt.Sprintf("%s does not list %s, although these partitions contain managed nodes: a batch job that "+
				"starts there without a slice is requeued, and other jobs fail",
				f.Table.Path, strings.Join(names, ", ")),
			"run `caelum decisions set partition NAME` for each partition, or remove the managed nodes from it",
		),
		len(names) > 0,
	)
}

// bypass reports that new jobs are not assigned any slices, and checks the partition to which they are sent.
func (f *Facts) bypass() []Finding {
	const change = "run `caelum decisions bypass off`, or name another partition instead of off"
	t := f.Table
	if t.Bypass == "" {
		return nil
	}
	sends := fmt.Sprintf("%s sends new GPU jobs to the partition %s", t.Path, t.Bypass)
	if !slices.ContainsFunc(f.Partitions, func(p slurm.Partition) bool { return p.Name == t.Bypass }) {
		return []Finding{fault(sends+", which is not in slurm.conf: slurmctld rejects these jobs", change)}
	}
	for _, n := range f.Nodes {
		if slices.Contains(n.Partitions, t.Bypass) && n.Gres.Total("mig") > 0 && !n.Unmanaged() {
			return []Finding{fault(
				sends+", but Caelum manages its node "+n.Name+": jobs without slices cannot run there", change)}
		}
	}
	return []Finding{warning(sends+": new jobs get no slices",
		"run `caelum decisions bypass off` when new jobs should get slices again")}
}

// compareProfiles compares the profiles in the table with served, the profiles of the catalogue nodes in the table's
// partitions.
func (t Table) compareProfiles(served []string) (found []Finding) {
	if lacks := difference(t.Names(), served); len(served) > 0 && len(lacks) > 0 {
		found = append(found, fault(
			fmt.Sprintf("%s lists %s, but no catalogue node in the table's partitions has these profiles: slurmctld "+
				"rejects jobs that request them unless a matching slice is on offer at that moment",
				t.Path, strings.Join(lacks, ", ")),
			renewConfig,
		))
	}
	if lacks := difference(served, t.Names()); len(lacks) > 0 {
		found = append(found, warning(
			fmt.Sprintf("the catalogue contains %s, which %s does not list: job_submit.lua rejects jobs that request "+
				"these profiles", strings.Join(lacks, ", "), t.Path),
			renewConfig,
		))
	}
	return found
}
