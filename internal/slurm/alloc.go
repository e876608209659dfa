package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// allocHead is the beginning of the section in the output of `scontrol -d show job` that lists a job's GRES on each
// node:
//
//	JOB_GRES=gpu:a100:3
//	  Nodes=n1 CPU_IDs=1-4 Mem=0 GRES=gpu:a100:2(IDX:4-5)
//	  Nodes=n2 CPU_IDs=2-3 Mem=0 GRES=gpu:a100:1(IDX:5)
//	MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
//
// The whole section comes from slurmctld, which combines consecutive nodes with the same GRES into a hostlist.
const allocHead = "\n   JOB_GRES="

var (
	allocLine = regexp.MustCompile(`^     Nodes=(\S+) CPU_IDs=\S* Mem=[0-9]+ GRES=(\S*) *$`)
	allocTail = regexp.MustCompile(`^   MinCPUsNode=[0-9]+ `)
)

// parseAllocation takes the detailed record of a job that holds the given nodes (`scontrol -d show job`) and parses the
// section that lists the job's allocation on each node.
//
// If a job holds nodes, this section occurs exactly once in its record. A user can insert lookalikes before or after
// it, but cannot remove the real one, so a section that occurs only once is genuine. If the section occurs more than
// once, parseAllocation returns ErrAmbiguous.
func parseAllocation(out string, nodes []string) (map[string]GRESList, error) {
	switch n := strings.Count(out, allocHead); {
	case n == 0:
		return nil, fmt.Errorf("scontrol shows no allocation")
	case n > 1:
		return nil, fmt.Errorf("%w: scontrol shows %d JOB_GRES sections", ErrAmbiguous, n)
	}
	_, section, _ := strings.Cut(out, allocHead)
	lines := strings.Split(section, "\n")[1:]
	alloc := make(map[string]GRESList)
	for _, line := range lines {
		if allocTail.MatchString(line) {
			return alloc, covers(alloc, nodes)
		}
		m := allocLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("scontrol shows an unexpected line in an allocation: %.80q", line)
		}
		hosts, err := ExpandHosts(m[1])
		if err != nil {
			return nil, err
		}
		gres, err := ParseGRES(m[2])
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			if _, dup := alloc[h]; dup {
				return nil, fmt.Errorf("scontrol shows node %s twice in an allocation", h)
			}
			alloc[h] = gres
		}
	}
	return nil, fmt.Errorf("scontrol does not show the end of the allocation")
}

// unclearRecord is caelum-show's exit status if it cannot assign the GRES to nodes.
const unclearRecord = 2

// setAllocated parses the output of `caelum-show job ID`, which contains no text that users can set. If it describes a
// different run from the one in j, setAllocated returns ErrChanging.
func (j *Job) setAllocated(out string) error {
	first, rest, _ := strings.Cut(out, "\n")
	start, restarts, ok := strings.Cut(strings.TrimPrefix(first, "StartTime="), " Restarts=")
	if !ok {
		return fmt.Errorf("job %d: caelum-show prints an unexpected line: %.80q", j.ID, first)
	}
	if !sameTime(start, j.Start) || restarts != strconv.Itoa(j.Restarts) {
		return ErrChanging
	}
	alloc := map[string]GRESList{}
	for line := range strings.Lines(rest) {
		node, gres, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "Node="), " GRES=")
		list, err := ParseGRES(gres)
		if !ok || err != nil {
			return fmt.Errorf("job %d: caelum-show prints an unexpected line: %.80q", j.ID, line)
		}
		alloc[node] = list
	}
	if err := covers(alloc, j.Nodes); err != nil {
		return fmt.Errorf("job %d: %w", j.ID, err)
	}
	j.Allocated = alloc
	return nil
}

// These lines distinguish the runs of a job. scontrol prints each of them exactly once per job (docs/slurm-releases.md,
// "Commands and their output").
var (
	stateLine = regexp.MustCompile(`\n   JobState=(\S*) `)
	startLine = regexp.MustCompile(`\n   StartTime=(\S*) `)
)

// checkRun compares a job's detailed record with its record from squeue and returns ErrChanging if they describe
// different runs. A user can add a line that looks like a JobState or StartTime line, but cannot remove the real one,
// so a line that occurs only once is genuine.
func checkRun(out string, j Job) error {
	state, start := stateLine.FindAllStringSubmatch(out, 2), startLine.FindAllStringSubmatch(out, 2)
	switch {
	case len(state) > 1 || len(start) > 1:
		return fmt.Errorf("%w: scontrol shows more than one JobState or StartTime line", ErrAmbiguous)
	case len(state) == 0 || len(start) == 0:
		return fmt.Errorf("scontrol does not show the job's state or start time")
	case state[0][1] != j.State || !sameTime(start[0][1], j.Start):
		return ErrChanging
	}
	return nil
}

// covers compares the nodes in the section with the nodes reported by squeue, which users cannot forge.
func covers(alloc map[string]GRESList, nodes []string) error {
	if len(alloc) != len(nodes) {
		return fmt.Errorf("scontrol shows the allocation on %d nodes, but squeue shows it on %d", len(alloc),
			len(nodes))
	}
	if i := slices.IndexFunc(nodes, func(n string) bool { _, ok := alloc[n]; return !ok }); i >= 0 {
		return fmt.Errorf("squeue shows an allocation on %s, but scontrol does not", nodes[i])
	}
	return nil
}
