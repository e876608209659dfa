package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"caelum/internal/core/mig"
)

// snapshot is the state of the cluster according to the hardware, the files and the processes. No part of Caelum is
// used to read it.
type snapshot struct {
	At    int64 // Unix time, in nanoseconds, before the first read
	Nodes map[string]nodeState
	Procs []proc
}

// nodeState is the state of one node. readNode reads its parts one after another, beginning with the GPUs.
type nodeState struct {
	GPUs    []gpu
	Clients []client // processes with a CUDA context according to the emulated driver
	Leases  []leaseFile
	Other   []string // names of other files in the lease file directory
	Caps    []capFile
	Limits  []limit
	Groups  []uint64 // inode numbers of the cgroups that agents have made for jobs
}

type gpu struct {
	Lost      bool
	UUID      string
	Divided   bool // the GPU has fractions
	Instances []instance
}

type instance struct {
	GI          int
	Profile     string
	Start, Size int
	Held        bool
	UUID        string // UUID of the compute instance, or empty if there is none
}

type client struct {
	PID     int
	GPU, GI int
}

// leaseFile is a file in /run/caelum/jobs.
type leaseFile struct {
	Job   string
	UID   int
	UUIDs []string
	Group uint64 // inode number of the job's cgroup, or 0
	Whole bool   // true if the file contains the last line of a complete lease file
}

// capFile describes a capability file of one of the node's instances.
type capFile struct {
	GPU, GI int
	Name    string
	UID     int
	Mode    uint32
	Users   []int // further users who can open the file
}

// proc is a process with a job id in its environment.
type proc struct {
	PID       int
	Job, Node string
	UID       int
	UUIDs     []string
	Name      string
}

// pause is the time between snapshots.
const pause = 250 * time.Millisecond

// observe writes each snapshot as a line of JSON until the reader closes the pipe. It runs as root on the cluster's
// login node, where root can read all nodes' processes and, through /proc, their files.
func observe(w io.Writer) {
	enc := json.NewEncoder(w)
	for {
		if err := enc.Encode(readSnapshot()); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// holders is a directory with one file per node. Each file contains the pid of the process that keeps the node's
// namespaces alive.
const holders = "/run/devcluster/holders"

func readSnapshot() snapshot {
	s := snapshot{At: time.Now().UnixNano(), Nodes: map[string]nodeState{}}
	files, _ := filepath.Glob(holders + "/*")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			s.Nodes[filepath.Base(file)] = readNode("/proc/" + strings.TrimSpace(string(text)) + "/root")
		}
	}
	s.Procs = readProcs()
	return s
}

// readNode reads a node's state. The argument root is the path of the node's root directory on the login node.
func readNode(root string) nodeState {
	n := readHardware(root)
	dir := root + "/run/caelum/jobs"
	names, _ := os.ReadDir(dir)
	for _, e := range names {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil {
			n.Other = append(n.Other, e.Name())
		} else if text, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			n.Leases = append(n.Leases, parseLease(e.Name(), string(text)))
		}
	}
	n.Caps = readCaps(root)
	for g := range n.GPUs {
		var st syscall.Stat_t
		name := fmt.Sprintf("nvidia%d", g)
		full := slices.ContainsFunc(n.GPUs[g].Instances, func(in instance) bool { return in.GI == fullGI })
		if full && syscall.Stat(root+"/dev/"+name, &st) == nil {
			n.Caps = append(n.Caps, capFile{GPU: g, GI: fullGI, Name: name, UID: int(st.Uid), Mode: st.Mode & 0o777,
				Users: listed(root + "/dev/" + name)})
		}
	}
	n.Groups = readGroups(root)
	return n
}

// shown is the output of `nvml-emulator show --json`.
type shown struct {
	GPUs []struct {
		UUID      string
		Board     string
		Grid      int
		MIG       bool
		Lost      bool
		Instances []struct {
			instance
			Compute []struct{ UUID string }
		}
	}
	Processes []struct {
		PID, GPU int
		GI       *int // nil for a process on a whole GPU
	}
	Limits []limit
}

func readHardware(root string) (n nodeState) {
	cmd := exec.Command("nvml-emulator", "show", "--json")
	cmd.Env = append(os.Environ(), "NVML_EMULATOR_STATE="+root+"/run/nvml-emulator/state")
	var out shown
	text, err := cmd.Output()
	if err != nil || json.Unmarshal(text, &out) != nil {
		fmt.Fprintf(os.Stderr, "couldn't read the emulated GPUs: %v: %s\n", err, text)
		return n
	}
	for _, p := range out.Processes {
		at := client{p.PID, p.GPU, fullGI}
		if p.GI != nil {
			at.GI = *p.GI
		}
		n.Clients = append(n.Clients, at)
	}
	n.Limits = out.Limits
	for _, g := range out.GPUs {
		one := gpu{Lost: g.Lost, UUID: g.UUID, Divided: g.Board == fractionBoard}
		for _, in := range g.Instances {
			if len(in.Compute) > 0 {
				in.UUID = in.Compute[0].UUID
			}
			one.Instances = append(one.Instances, in.instance)
		}
		if !g.MIG {
			one.Instances = append(one.Instances, instance{GI: fullGI, Profile: mig.Full, Size: g.Grid, UUID: g.UUID})
		}
		n.GPUs = append(n.GPUs, one)
	}
	return n
}

// fullGI is the id of the instance that, in a snapshot, represents a GPU whose MIG mode is off.
const fullGI = -1

func parseLease(name, text string) leaseFile {
	l := leaseFile{Job: name, UID: -1}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "uid":
			l.UID, _ = strconv.Atoi(f[1])
		case len(f) == 2 && f[0] == "cgroup":
			l.Group, _ = strconv.ParseUint(f[1], 10, 64)
		case len(f) == 3 && f[0] == "slot" && f[2] != "-":
			l.UUIDs = append(l.UUIDs, f[2])
		case len(f) == 1 && f[0] == "end":
			l.Whole = true
		}
	}
	return l
}

// readCaps reads the capability files and assigns them to their instances, using the driver's list of minor numbers.
func readCaps(root string) (all []capFile) {
	list, _ := os.ReadFile(root + "/run/nvml-emulator/proc/driver/nvidia-caps/mig-minors")
	minors := map[uint32][2]int{}
	for line := range strings.Lines(string(list)) {
		var gpu, gi int
		var minor uint32
		if k := strings.LastIndexByte(line, ' '); k > 0 {
			if n, _ := fmt.Sscanf(line, "gpu%d/gi%d/", &gpu, &gi); n == 2 {
				fmt.Sscan(line[k:], &minor)
				minors[minor] = [2]int{gpu, gi}
			}
		}
	}
	names, _ := filepath.Glob(root + "/dev/nvidia-caps/nvidia-cap*")
	for _, name := range names {
		var st syscall.Stat_t
		if syscall.Stat(name, &st) != nil {
			continue
		}
		if of, ok := minors[uint32(st.Rdev&0xff|st.Rdev>>12&0xfff00)]; ok {
			all = append(
				all,
				capFile{GPU: of[0], GI: of[1], Name: filepath.Base(name), UID: int(st.Uid), Mode: st.Mode & 0o777},
			)
		}
	}
	return all
}

// readProcs reads the jobs' processes: users' processes that have SLURM_JOB_ID in their environment.
func readProcs() (all []proc) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var st syscall.Stat_t
		if syscall.Stat(dir, &st) != nil || st.Uid == 0 {
			continue
		}
		text, err := os.ReadFile(dir + "/environ")
		if err != nil {
			continue
		}
		p := proc{UID: int(st.Uid)}
		p.PID, _ = strconv.Atoi(filepath.Base(dir))
		for _, v := range bytes.Split(text, []byte{0}) {
			key, value, _ := strings.Cut(string(v), "=")
			switch key {
			case "SLURM_JOB_ID":
				p.Job = value
			case "SLURMD_NODENAME":
				p.Node = value
			case "CUDA_VISIBLE_DEVICES":
				p.UUIDs = split(value)
			}
		}
		if p.Job == "" {
			continue
		}
		name, _ := os.ReadFile(dir + "/comm")
		p.Name = strings.TrimSpace(string(name))
		all = append(all, p)
	}
	return all
}
