package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"caelum/internal/gpu"
)

// What is done about a process that uses a slice of another job, or keeps one open after its job (foreign_processes).
const (
	foreignReport = "report"
	foreignKill   = "kill"
)

// stranger is a process on a leased slice that is not its job's. Start tells it from a later process with its pid.
type stranger struct {
	gpu.Process
	why string
}

// judge compares the processes on a job's slice with the job. The caller is the GPU's sampler.
func (a *Agent) judge(u *usage, pids []int) {
	job, uid, ok := a.seen.owner(u)
	if !ok {
		return
	}
	found := map[int]stranger{}
	for _, pid := range pids {
		p, why := a.strange(pid, job, uid)
		if why == "" {
			continue
		}
		if before, ok := u.strangers[pid]; ok && before.Start == p.Start {
			p = before.Process
		} else {
			a.log.WithField("job", job).WithField("gpu", u.GPU).WithField("uuid", u.UUID).Warnf(
				"a process that is not the job's uses its slice: %v, %s", p, why)
		}
		found[pid] = stranger{p, why}
	}
	a.seen.mu.Lock()
	u.strangers = found
	a.seen.mu.Unlock()
	if a.cfg.Foreign == foreignKill {
		for _, s := range found {
			a.endStranger(u, s, job, uid)
		}
	}
}

// owner is the job that holds an observed slice, and its user; ok is false once the job is released.
func (s *observer) owner(u *usage) (job, uid uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for job, o := range s.open {
		if slices.Contains(o.Slices, u) {
			return job, o.Run.UID, true
		}
	}
	return 0, 0, false
}

// strange says why a process is not a job's; empty when it is, is root's, or has ended.
func (a *Agent) strange(pid int, job, uid uint32) (gpu.Process, string) {
	p, err := a.procs.Read(pid)
	if err != nil || p.Root() {
		return p, ""
	}
	paths, err := a.procs.Cgroups(pid)
	if err != nil {
		return p, ""
	}
	return p, strangeness(p, paths, job, uid, a.jobCgroups())
}

// strangeness says why a process is not a job's. Where Slurm names the cgroups of jobs by their id, the cgroup decides, else the user.
func strangeness(p gpu.Process, cgroups []string, job, uid uint32, jobCgroups bool) string {
	in, named := slurmJob(cgroups)
	switch {
	case named && in == job:
		return ""
	case named && in != 0:
		return fmt.Sprintf("of job %d", in)
	case !named && jobCgroups:
		return "of no job"
	case !p.Is(uid):
		return fmt.Sprintf("of another user than the job's (uid %d)", uid)
	}
	return ""
}

// slurmJob is the job that a process belongs to by its cgroups: /slurm/uid_U/job_J/... or /system.slice/slurmstepd.scope/job_J/..., where
// the names have slurmd's node if several run on one host. Named is whether it is below one of Slurm's; job is 0 where a job's cgroup
// has another name (its SLUID, from Slurm 26.05 on). A user can make cgroups below user.slice, under any name.
func slurmJob(paths []string) (job uint32, named bool) {
	for _, path := range paths {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		for k := 1; k < len(parts) && parts[0] != "user.slice"; k++ {
			v2 := parts[k-1] == "slurmstepd.scope" || strings.HasSuffix(parts[k-1], "_slurmstepd.scope")
			v1 := k >= 2 && strings.HasPrefix(parts[k-1], "uid_") && strings.HasPrefix(parts[k-2], "slurm")
			if !v1 && !v2 {
				continue
			}
			named = true
			if text, ok := strings.CutPrefix(parts[k], "job_"); ok {
				if id, err := strconv.ParseUint(text, 10, 32); err == nil {
					return uint32(id), true
				}
			}
			break
		}
	}
	return 0, named
}

// jobCgroups reports whether Slurm puts every process of a job into a cgroup of the job.
func (a *Agent) jobCgroups() bool {
	a.slurmMu.Lock()
	defer a.slurmMu.Unlock()
	return a.slurm != nil && a.slurm.Has("ProctrackType", "proctrack/cgroup")
}

// endStranger ends a process that uses a job's slice, if it is still the same one, and still does. A process with a root id is left alone.
func (a *Agent) endStranger(u *usage, s stranger, job, uid uint32) {
	if slices.Contains(s.UIDs[:], 0) {
		return
	}
	err := a.procs.Kill(s.PID, func() bool {
		p, why := a.strange(s.PID, job, uid)
		if why == "" || p.Start != s.Start || slices.Contains(p.UIDs[:], 0) {
			return false
		}
		if _, _, ok := a.seen.owner(u); !ok {
			return false
		}
		pids, err := a.hw.Processes(u.GPU, u.in.GI)
		return err == nil && slices.Contains(pids, s.PID)
	})
	a.ended(u.GPU, u.UUID, s.Process, err)
}

// ended logs that a process was ended. One that had gone by then is no error.
func (a *Agent) ended(g int, uuid string, p gpu.Process, err error) {
	log := a.log.WithField("gpu", g).WithField("uuid", uuid)
	switch {
	case err == nil:
		log.Warnf("ended a process on a slice that is not its: %v", p)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
		log.WithError(err).Errorf("couldn't end a process on a slice that is not its: %v", p)
	}
}

// noteOn names the processes that hold or use an instance and are not its job's. The caller holds a.mu.
func (a *Agent) noteOn(in *instance) string {
	note := in.note
	a.seen.mu.Lock()
	defer a.seen.mu.Unlock()
	o := a.seen.open[in.Job]
	if o == nil {
		return note
	}
	var names []string
	for _, u := range o.Slices {
		if u.UUID != in.UUID {
			continue
		}
		for _, s := range u.strangers {
			names = append(names, fmt.Sprintf("%v, %s", s.Process, s.why))
		}
	}
	slices.Sort(names)
	if len(names) > maxNoted {
		names = append(names[:maxNoted], "...")
	}
	if len(names) > 0 {
		return "used by " + strings.Join(names, "; ")
	}
	return note
}
