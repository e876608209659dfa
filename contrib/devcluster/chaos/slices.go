package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// used reports whether the instance is listed in a lease file, or the driver reports a process on it or an open handle
// to it.
func (n nodeState) used(gpu int, in instance) bool {
	return in.Held || slices.ContainsFunc(n.Clients, func(c client) bool { return c.GPU == gpu && c.GI == in.GI }) ||
		slices.ContainsFunc(
			n.Leases,
			func(l leaseFile) bool { return in.UUID != "" && slices.Contains(l.UUIDs, in.UUID) },
		)
}

// instance returns the first instance that satisfies the given condition.
func (n nodeState) instance(is func(gpu int, in instance) bool) (found instance, ok bool) {
	for g := range n.GPUs {
		for _, in := range n.GPUs[g].Instances {
			if is(g, in) {
				return in, true
			}
		}
	}
	return instance{}, false
}

// sliceWatch checks in each snapshot that no slice is used by two jobs, and reports each finding only once.
type sliceWatch struct {
	report func(format string, args ...any)
	since  map[string]int64 // the time at which each suspicion, identified by its text, was first observed
}

func newSliceWatch(report func(string, ...any)) *sliceWatch {
	return &sliceWatch{report: report, since: map[string]int64{}}
}

// lasting is the minimum duration after which a suspicion becomes a finding. A suspicion that disappears earlier may
// result from the order of the reads, because the parts of a snapshot are read one after another, or from a killed
// process that its parent has not reaped yet.
const lasting = int64(2 * time.Second)

func (w *sliceWatch) check(s snapshot) {
	suspicions := map[string]int64{} // the duration after which each of them becomes a finding
	for name, n := range s.Nodes {
		for _, text := range leasedTwice(n) {
			w.report("%s: %s", name, text)
		}
		for _, text := range usedTwice(n, s.Procs) {
			w.report("%s: %s", name, text)
		}
		for _, text := range slices.Concat(strangers(n, s.Procs), openToOthers(n), seenTwice(name, n, s.Procs)) {
			suspicions[name+": "+text] = lasting
		}
		for _, text := range n.unlimited(s.Procs) {
			suspicions[name+": "+text] = restored
		}
	}
	for text := range w.since {
		if suspicions[text] == 0 {
			delete(w.since, text)
		}
	}
	for text, limit := range suspicions {
		if w.since[text] == 0 {
			w.since[text] = s.At
		} else if s.At-w.since[text] >= limit {
			w.report("%s, for %v", text, time.Duration(s.At-w.since[text]).Round(time.Second))
			w.since[text] = 1 << 62 // prevents the finding from being reported twice
		}
	}
}

// leasedTwice returns the slices that occur in two lease files. The order of the reads cannot lead to a false result:
// the agent writes a lease file completely before it renames it to its final name, a snapshot reads a node's files
// within milliseconds, and the agent assigns a slice to another job only in a prolog, which takes longer than a
// snapshot.
func leasedTwice(n nodeState) (all []string) {
	for i, a := range n.Leases {
		for _, b := range n.Leases[i+1:] {
			for _, uuid := range a.UUIDs {
				if slices.Contains(b.UUIDs, uuid) {
					all = append(all,
						fmt.Sprintf("the lease files of jobs %s and %s both contain %s", a.Job, b.Job, uuid))
				}
			}
		}
	}
	return all
}

// usedTwice returns the instances on which processes of two jobs have a context, according to a single answer from the
// driver.
func usedTwice(n nodeState, procs []proc) (all []string) {
	for i, a := range n.Clients {
		for _, b := range n.Clients[i+1:] {
			one, two := jobOf(a.PID, procs), jobOf(b.PID, procs)
			if a.GPU == b.GPU && a.GI == b.GI && !n.GPUs[a.GPU].Divided && one != "" && two != "" && one != two {
				all = append(
					all,
					fmt.Sprintf("processes of jobs %s and %s use instance %d on GPU %d", one, two, a.GI, a.GPU),
				)
			}
		}
	}
	return all
}

// strangers returns the processes on an instance that is listed in another job's lease file.
func strangers(n nodeState, procs []proc) (all []string) {
	for _, c := range n.Clients {
		job := jobOf(c.PID, procs)
		in, ok := n.instance(func(gpu int, in instance) bool { return gpu == c.GPU && in.GI == c.GI })
		if job == "" || !ok || in.UUID == "" {
			continue
		}
		for _, l := range n.Leases {
			if l.Job != job && slices.Contains(l.UUIDs, in.UUID) {
				all = append(
					all,
					fmt.Sprintf("process %d of job %s uses %s, which is leased to job %s", c.PID, job, in.UUID, l.Job),
				)
			}
		}
	}
	return all
}

// openToOthers returns the capability files, and the device files of full GPUs, that can be opened by users other than
// the owner of the lease.
func openToOthers(n nodeState) (all []string) {
	for _, c := range n.Caps {
		in, ok := n.instance(func(gpu int, in instance) bool { return gpu == c.GPU && in.GI == c.GI })
		for _, l := range n.Leases {
			if ok && in.UUID != "" && slices.Contains(l.UUIDs, in.UUID) &&
				(c.UID != 0 && c.UID != l.UID || c.Mode&0o077 != 0) {
				all = append(
					all,
					fmt.Sprintf("the file %s of job %s (user %d) has owner %d and mode %o",
						c.Name, l.Job, l.UID, c.UID, c.Mode),
				)
			}
		}
	}
	return all
}

// seenTwice returns the processes of different jobs on a node whose values of CUDA_VISIBLE_DEVICES have a slice in
// common. Jobs without a lease file are ignored, because they have either ended or not started yet: a process left over
// from a finished job keeps its environment even if it does not use the slice. GPUs with fractions are ignored, too.
func seenTwice(node string, n nodeState, procs []proc) (all []string) {
	first := map[string]proc{}
	for _, p := range procs {
		for _, uuid := range p.UUIDs {
			leased := slices.ContainsFunc(n.Leases, func(l leaseFile) bool { return l.Job == p.Job })
			if p.Node != node || !leased || n.divided(uuid) ||
				!strings.HasPrefix(uuid, "MIG-") && !strings.HasPrefix(uuid, "GPU-") {
				continue
			}
			if q, ok := first[uuid]; ok && q.Job != p.Job {
				all = append(
					all,
					fmt.Sprintf(
						"%s is in the environments of process %s (%d) of job %s and of process %s (%d) of job %s",
						uuid,
						q.Name,
						q.PID,
						q.Job,
						p.Name,
						p.PID,
						p.Job,
					),
				)
			} else {
				first[uuid] = p
			}
		}
	}
	return all
}

func jobOf(pid int, procs []proc) string {
	for _, p := range procs {
		if p.PID == pid {
			return p.Job
		}
	}
	return ""
}
