package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// allocHead is the beginning of a section in the output of `scontrol -d show job`. The section contains the GRES of a
// job on each node:
//
//	JOB_GRES=gpu:a100:3
//	  Nodes=n1 CPU_IDs=1-4 Mem=0 GRES=gpu:a100:2(IDX:4-5)
//	  Nodes=n2 CPU_IDs=2-3 Mem=0 GRES=gpu:a100:1(IDX:5)
//	MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
//
// slurmctld writes the whole section. slurmctld writes consecutive nodes with the same GRES as a hostlist.
const allocHead = "\n   JOB_GRES="

var (
	allocLine = regexp.MustCompile(`^     Nodes=(\S+) CPU_IDs=\S* Mem=[0-9]+ GRES=(\S*) *$`)
	allocTail = regexp.MustCompile(`^   MinCPUsNode=[0-9]+ `)
)

// parseAllocation parses the section in the details of one job that holds the given nodes.
//
// The record of every job that holds nodes contains this section once. A user can write text that looks like such a
// section, before or after the real section, but cannot remove the real section. A section that occurs only once is
// therefore real. If the output contains several sections, parseAllocation returns ErrAmbiguous.
func parseAllocation(out string, nodes []string) (map[string]GRESList, error) {
	switch n := strings.Count(out, allocHead); {
	case n == 0:
		return nil, fmt.Errorf("scontrol shows no allocation")
	case n > 1:
		return nil, fmt.Errorf("%w: %d sections JOB_GRES", ErrAmbiguous, n)
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
			return nil, fmt.Errorf("scontrol: unexpected line %.80q in an allocation", line)
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
				return nil, fmt.Errorf("scontrol: node %s appears twice in an allocation", h)
			}
			alloc[h] = gres
		}
	}
	return nil, fmt.Errorf("scontrol shows an allocation without an end")
}

// These lines distinguish the runs of a job. scontrol prints each of these lines exactly once for every job
// (docs/slurm-releases.md, "Commands and their output").
var (
	stateLine = regexp.MustCompile(`\n   JobState=(\S*) `)
	startLine = regexp.MustCompile(`\n   StartTime=(\S*) `)
)

// checkRun compares the details of a job with the job's record from squeue. checkRun returns ErrChanging if the details
// and the record describe different runs. A user can add a line that looks like a JobState or StartTime line, but
// cannot remove the real line. A line that occurs only once is therefore real.
func checkRun(out string, j Job) error {
	state, start := stateLine.FindAllStringSubmatch(out, 2), startLine.FindAllStringSubmatch(out, 2)
	switch {
	case len(state) > 1 || len(start) > 1:
		return fmt.Errorf("%w: scontrol shows more than one JobState or StartTime", ErrAmbiguous)
	case len(state) == 0 || len(start) == 0:
		return fmt.Errorf("scontrol shows no state or no start time of the job")
	case state[0][1] != j.State || !sameTime(start[0][1], j.Start):
		return ErrChanging
	}
	return nil
}

// covers compares the nodes in the section with the nodes from squeue, which texts of users cannot change.
func covers(alloc map[string]GRESList, nodes []string) error {
	if len(alloc) != len(nodes) {
		return fmt.Errorf("scontrol shows an allocation on %d nodes, but squeue on %d", len(alloc), len(nodes))
	}
	if i := slices.IndexFunc(nodes, func(n string) bool { _, ok := alloc[n]; return !ok }); i >= 0 {
		return fmt.Errorf("scontrol shows no allocation on %s, but squeue does", nodes[i])
	}
	return nil
}
