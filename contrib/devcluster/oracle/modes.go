package oracle

import (
	"fmt"
	"slices"
)

// fullProfile is the profile of a GPU whose MIG mode is off. In the record, such a GPU has one instance of this
// profile, which occupies all units. The rules for instances therefore also check that the GPU has no other instances
// while its MIG mode is off.
const fullProfile = "full"

// modeSet adds a change of the MIG mode to the record. MIG mode is initially on. The size of the instance depends on
// the GPU model and remains 0 until withSizes sets it.
func (h *hardwareReader) modeSet(gpu int, mode string, at int64) {
	place := [2]int{gpu, -1}
	k, off := h.instances[place]
	switch {
	case mode == "off" && !off:
		h.instances[place] = len(h.Instances)
		h.Instances = append(h.Instances, Instance{GPU: gpu, GI: -1, Profile: fullProfile, Born: at, Died: Never})
	case mode == "on" && off:
		h.Instances[k].Died = at
		delete(h.instances, place)
	default:
		return // the new mode is pending, or the GPU was already in this mode
	}
	h.Switches = append(h.Switches, Switch{GPU: gpu, Off: mode == "off", At: at})
}

// Switch is a change of a GPU's MIG mode.
type Switch struct {
	GPU int
	Off bool
	At  int64
}

func (s Switch) String() string {
	if s.Off {
		return fmt.Sprintf("MIG mode of GPU %d was switched off", s.GPU)
	}
	return fmt.Sprintf("MIG mode of GPU %d was switched on", s.GPU)
}

// withSizes returns h with the sizes of full GPUs, and of the processes on them, filled in.
func (h Hardware) withSizes(grid int) Hardware {
	h.Instances, h.Processes = slices.Clone(h.Instances), slices.Clone(h.Processes)
	for k := range h.Instances {
		if h.Instances[k].Profile == fullProfile {
			h.Instances[k].Size = grid
		}
	}
	for k := range h.Processes {
		if h.Processes[k].Size == 0 {
			h.Processes[k].Size = grid
		}
	}
	return h
}

// switches checks each change of the MIG mode. At the time of the change, the GPU must not be held by a job or used by
// a process. There must be a started run without a lease that needs the new mode: a run with full GPUs needs MIG mode
// to be off, and a run with slices needs it to be on. This ensures that no GPU switches back and forth unnecessarily.
func (j *check) switches() {
	name := j.node.Name
	for _, s := range j.node.Switches {
		j.Switches++
		for _, l := range j.node.Leases {
			if l.GPU == s.GPU && l.From < s.At && l.To > s.At {
				j.add("switch", name, s.At, "%v, while job %d held %v", s, l.Job, j.interval(l))
			}
		}
		for _, p := range j.node.Processes {
			if p.GPU == s.GPU && p.From < s.At && p.To > s.At && !p.Killed {
				j.add("switch", name, s.At, "%v, while process %d used the GPU", s, p.PID)
			}
		}
		if !slices.ContainsFunc(j.run.Starts, func(st Start) bool { return j.needs(st, s) }) {
			j.add("switch", name, s.At, "%v, but no run that was waiting for its lease needed the mode", s)
		}
	}
}

// needs reports whether a run was waiting for its lease at the time of a switch and needed the new mode.
func (j *check) needs(st Start, s Switch) bool {
	leased, _ := j.answered(st)
	if st.Node != j.node.Name || st.At > s.At || leased < s.At || st.End < s.At && leased == Never {
		return false
	}
	for p, n := range st.Profiles {
		if n > 0 && p != closedType && (p == fullProfile) == s.Off {
			return true
		}
	}
	return false
}

// File holds the owner and mode of a GPU's device file (/dev/nvidiaN), as found by a job.
type File struct {
	Job  uint32
	Node string
	At   int64
	GPU  int
	// Owner is the file's owner, and Mode is its mode, for example 666. User is the job's user.
	Owner, User int
	Mode        string
}

// files checks the permissions on the device files. While MIG mode is on, all users must be able to open the file.
// While MIG mode is off, the file must be accessible only to the user of the job that holds the GPU. All jobs in a run
// belong to the same user. A file is not checked if the lease or the MIG mode of its GPU changed at about the time when
// the job read the file's mode, because the order in which the agent made and logged its changes is then unknown. The
// GPUs of the job itself do not change.
func (j *check) files() {
	for _, f := range j.run.Files {
		if f.Node != j.node.Name {
			continue
		}
		near := func(at int64) bool { return at > f.At-margin && at < f.At+margin }
		off, held, own, changing := false, false, false, false
		for _, in := range j.node.Instances {
			if in.GPU == f.GPU && in.Profile == fullProfile {
				off = off || in.Born <= f.At && in.Died > f.At
				changing = changing || near(in.Born) || near(in.Died)
			}
		}
		for _, l := range j.node.Leases {
			if l.GPU == f.GPU {
				now := l.From <= f.At && l.To > f.At
				held, own = held || now && l.Profile == fullProfile, own || now && l.Job == f.Job
				changing = changing || l.Profile == fullProfile && (near(l.From) || near(l.To))
			}
		}
		if changing && !own {
			continue
		}
		j.Files++
		owner, mode := 0, "666"
		if off {
			mode = "600"
		}
		if held {
			owner = f.User
		}
		if f.Owner != owner || f.Mode != mode {
			j.add("file", f.Node, f.At, "job %d found the owner %d and the mode %s for the device file of GPU %d; "+
				"the owner must be %d, and the mode %s", f.Job, f.Owner, f.Mode, f.GPU, owner, mode)
		}
	}
}

// margin is the time, in nanoseconds, before and after a change during which files does not check the GPU's device
// file.
const margin = int64(1e9)
