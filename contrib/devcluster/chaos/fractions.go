package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// With -fractions, the last node has GPUs without MIG that are divided into fractionUnits units (fractions.yaml).
const fractionBoard, fractionUnits = "L40S-48GB", 4

// fractionSizes holds the units of each profile of such a GPU, and limitSizes those of each memory limit in MiB.
var (
	fractionSizes = map[string]int{"1f.11gb": 1, "2f.22gb": 2, "full": fractionUnits}
	limitSizes    = map[uint64]int{11389: 1, 22778: 2}
)

// fractionKinds lists the kinds of jobs that are added by -fractions.
var fractionKinds = []jobKind{
	{"fraction", 100, "a fraction of a GPU, or a whole GPU without MIG, and nearly all of its memory"},
}

// addFractions adds the node with fractions to the options, and its jobs and faults to the lists.
func (o *options) addFractions() error {
	if !o.fractions {
		return nil
	}
	if o.features {
		return errors.New("-fractions and -features exclude each other")
	}
	// In cgroup v2, hugetlb stands in for the controllers of the driver's memory limits (contrib/nvml-emulator).
	controllers, _ := os.ReadFile("/proc/cgroups")
	if !regexp.MustCompile(`(?m)^hugetlb\t0\t`).Match(controllers) {
		return errors.New("-fractions needs the controller hugetlb in cgroup v2, which this machine does not have")
	}
	jobKinds, faults = append(jobKinds, fractionKinds...), slices.Concat(faults, fractionFaults)
	o.model = strings.Repeat(o.model+",", o.nodes) + fractionBoard
	o.nodes++
	o.cgroup = "v2"
	return nil
}

// divides reports whether a node's GPUs have fractions.
func (o options) divides(node string) bool { return o.fractions && node == fmt.Sprint("n", o.nodes) }

// fraction returns the options of a job on the node with fractions, and the command that it runs.
func (v variant) fraction(run string) (options []string, command string) {
	profile, mib, shared := "1f.11gb", 11000, " shared"
	switch {
	case v.choice >= 85:
		profile, mib, shared = "full", 44000, ""
	case v.choice >= 50:
		profile, mib = "2f.22gb", 22000
	}
	return []string{gres(profile, 1)}, fmt.Sprintf("%s 0:%d,%s:%d%s", run, mib, v.seconds, mib, shared)
}

// limit is the memory limit of a cgroup on a GPU.
type limit struct {
	GPU   int
	Inode uint64
	MiB   uint64
}

// readGroups returns the inode numbers of the cgroups that the agent of a node has made for jobs.
func readGroups(root string) (all []uint64) {
	paths, _ := filepath.Glob(root + "/sys/fs/cgroup/system.slice/*slurmstepd.scope/*/caelum")
	for _, path := range paths {
		var st syscall.Stat_t
		if syscall.Stat(filepath.Dir(path), &st) == nil {
			all = append(all, st.Ino)
		}
	}
	return all
}

// listed returns the users in a file's access control list.
func listed(path string) (uids []int) {
	acl := make([]byte, 1024)
	n, _ := unix.Getxattr(path, "system.posix_acl_access", acl)
	for at := 4; at+8 <= n; at += 8 {
		if acl[at] == 2 { // ACL_USER
			uids = append(uids, int(acl[at+4])|int(acl[at+5])<<8|int(acl[at+6])<<16)
		}
	}
	return uids
}

// divided reports whether a UUID is that of a GPU with fractions.
func (n nodeState) divided(uuid string) bool {
	return slices.ContainsFunc(n.GPUs, func(g gpu) bool { return g.Divided && g.UUID == uuid })
}

// on reports whether a lease contains a part of a GPU.
func (l leaseFile) on(g gpu) bool {
	return slices.ContainsFunc(l.UUIDs, func(uuid string) bool {
		return uuid == g.UUID || strings.HasPrefix(uuid, g.UUID+"/")
	})
}

// units returns the units of a GPU that a lease holds. ok is false if the job's memory is not limited as it should be.
func (n nodeState) units(g int, l leaseFile) (units int, ok bool) {
	var mib uint64
	for _, limit := range n.Limits {
		if limit.GPU == g && limit.Inode == l.Group {
			mib = limit.MiB
		}
	}
	if slices.Contains(l.UUIDs, n.GPUs[g].UUID) {
		return fractionUnits, mib == 0
	}
	units, ok = limitSizes[mib]
	return units, ok
}

// restored is the duration after which a job without the right limit becomes a finding. The agent sets a limit again
// that another program has removed.
const restored = int64(10 * time.Second)

// unlimited returns the jobs on GPUs with fractions whose memory is not limited, or whose limits together exceed the
// GPU's memory, and the users and processes without a part of the GPU.
func (n nodeState) unlimited(procs []proc) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for g := range n.GPUs {
		if !n.GPUs[g].Divided {
			continue
		}
		sum, jobs, users := 0, []string{}, map[int]bool{0: true}
		for _, l := range n.Leases {
			if !l.on(n.GPUs[g]) {
				continue
			}
			units, ok := n.units(g, l)
			if !ok {
				say("the GPU memory of job %s on GPU %d is not limited: cgroup %d, limits %v",
					l.Job, g, l.Group, n.Limits)
			}
			sum, jobs, users[l.UID] = sum+units, append(jobs, l.Job), true
		}
		if sum > fractionUnits {
			say("the jobs %s hold %d units of GPU %d, which has %d", strings.Join(jobs, ", "), sum, g, fractionUnits)
		}
		for _, c := range n.Caps {
			for _, uid := range c.Users {
				if c.GPU == g && !users[uid] {
					say("user %d without a part of GPU %d can open it", uid, g)
				}
			}
		}
		for _, c := range n.Clients {
			if job := jobOf(c.PID, procs); c.GPU == g && job != "" && !slices.Contains(jobs, job) {
				say("process %d of job %s uses GPU %d without a part of it", c.PID, job, g)
			}
		}
	}
	return all
}

// fitsFractions reports whether the GPUs have enough units for the slices. Because sizes are powers of two, the largest
// first fits whenever any order does.
func (n nodeState) fitsFractions(wants map[string]int) bool {
	free := make([]int, len(n.GPUs))
	for g := range n.GPUs {
		free[g] = fractionUnits
		for _, l := range n.Leases {
			if l.on(n.GPUs[g]) {
				units, ok := n.units(g, l)
				if !ok {
					units = fractionUnits
				}
				free[g] -= units
			}
		}
	}
	list := slices.SortedFunc(maps.Keys(wants), func(a, b string) int { return fractionSizes[b] - fractionSizes[a] })
	for _, profile := range list {
		size := fractionSizes[profile]
		for range wants[profile] {
			k := slices.IndexFunc(free, func(units int) bool { return units >= size })
			if size == 0 || k < 0 {
				return false
			}
			free[k] -= size
		}
	}
	return true
}

// fractionFaults lists the faults on the node with fractions. They never end a job that uses no more than its fraction.
var fractionFaults = []fault{
	{
		name:      "limit-removed",
		does:      "removes the memory limit of a job, as root can",
		part:      "agent", // which must set the limit again
		fractions: true,
		shortest:  4,
		longest:   5,
		begin:     removeLimit,
		end:       func(*breaking) error { return nil },
	},
	{
		name:      "controller-off",
		does:      "disables the controller in the cgroups of all jobs, as systemd can",
		part:      "agent",
		fractions: true,
		shortest:  4,
		longest:   5,
		begin: func(b *breaking) error {
			return b.root(b.node, "bash", "-c", `cd /sys/fs/cgroup/system.slice; s=`+b.node+`_slurmstepd.scope
				[[ -d $s ]] || s=slurmstepd.scope; echo -hugetlb >$s/cgroup.subtree_control`)
		},
		end: func(*breaking) error { return nil },
	},
	{
		name:      "killed-at-limit",
		does:      "kills the agent the next time it sets or removes a memory limit",
		part:      "gpu",
		fractions: true,
		shortest:  3,
		longest:   10,
		end:       clearFaults,
		begin: func(b *breaking) error {
			return b.addFault("SET_LIMITS", "--kill", pick(b.rng, "before", "torn", "after"))
		},
	},
	{
		name:      "limit-fails",
		does:      "makes the next one to three attempts to set or remove a memory limit fail",
		part:      "gpu",
		fractions: true,
		shortest:  3,
		longest:   10,
		ends:      sentBack,
		end:       clearFaults,
		begin: func(b *breaking) error {
			return b.addFault("SET_LIMITS", "--times", fmt.Sprint(1+b.rng.IntN(3)), "--error", "UNKNOWN")
		},
	},
}

// removeLimit removes one of the memory limits on a node.
func removeLimit(b *breaking) error {
	n := b.latest().Nodes[b.node]
	var some []limit
	for _, l := range n.Limits {
		if slices.ContainsFunc(n.Leases, func(lease leaseFile) bool { return lease.Group == l.Inode }) {
			some = append(some, l)
		}
	}
	if len(some) == 0 {
		return errNothing
	}
	l := some[b.rng.IntN(len(some))]
	b.note = fmt.Sprint("cgroup ", l.Inode)
	const command = `nvml-emulator limit %d "$(find /sys/fs/cgroup/system.slice -maxdepth 2 -inum %d)" none`
	return b.root(b.node, "bash", "-c", fmt.Sprintf(command, l.GPU, l.Inode))
}
