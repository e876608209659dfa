package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"caelum/contrib/devcluster/oracle"
)

// judgeProcesses compares the emulators' logs, which contain every CUDA process, with the records that the jobs write.
// This also finds overlaps that begin and end between two snapshots.
func (c *campaign) judgeProcesses() {
	notes := ""
	for _, user := range users {
		text, _ := os.ReadFile(filepath.Join(c.cluster.Dir, "home", user, "ran.log"))
		notes += string(text)
	}
	c.counts.processes = 0
	for _, node := range c.nodes() {
		h, err := oracle.ReadHardware(strings.NewReader(withoutLost(c.tell(node, "nvml-emulator", "log"))))
		if err != nil {
			c.found.add(&c.time, ruleTools, "%s: %v", node, err)
			continue
		}
		c.counts.processes += len(h.Processes)
		if c.o.divides(node) {
			continue // the processes of all fractions of a GPU have the GPU's UUID
		}
		for _, text := range overlaps(h.Processes, jobsOf(node, notes)) {
			c.found.add(&c.time, ruleTwice, "%s: %s", node, text)
		}
	}
}

// withoutLost removes the lines about lost GPUs from an emulator's log, because emulated instances and processes
// survive the loss of their GPU.
func withoutLost(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if f := strings.Fields(line); len(f) < 2 || f[1] != "lose" && f[1] != "find" {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// onSlice identifies a process on a slice.
type onSlice struct {
	uuid string
	pid  int
}

// jobsOf returns the job of each process on a node, according to the records that the jobs write.
func jobsOf(node, notes string) map[onSlice]string {
	jobs := map[onSlice]string{}
	for line := range strings.Lines(notes) {
		var job, on string
		var at onSlice
		words := strings.NewReplacer("job=", "", "node=", "", "uuid=", "", "pid=", "").Replace(line)
		if n, _ := fmt.Sscanf(words, "ran %s %s %s %d", &job, &on, &at.uuid, &at.pid); n == 4 && on == node {
			jobs[at] = job
		}
	}
	return jobs
}

// overlaps returns the pairs of processes of different jobs that used the same slice at the same time. Killed processes
// are ignored, because it is not known when they ended.
func overlaps(all []oracle.Process, jobs map[onSlice]string) (found []string) {
	slices.SortFunc(all, func(a, b oracle.Process) int { return cmp.Compare(a.From, b.From) })
	for i, a := range all {
		for _, b := range all[i+1:] {
			one, two := jobs[onSlice{a.UUID, a.PID}], jobs[onSlice{b.UUID, b.PID}]
			if a.UUID == b.UUID && b.From < a.To && !a.Killed && one != "" && two != "" && one != two {
				found = append(
					found,
					fmt.Sprintf("jobs %s and %s used %s at %s", one, two, a.UUID, clock(time.Unix(0, b.From))),
				)
			}
		}
	}
	return found
}
