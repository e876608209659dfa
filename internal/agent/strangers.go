package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/gpu"
)

// The values of foreign_processes: what is done about a process that uses a slice of another job, or keeps one open
// after its job.
const (
	foreignReport     = "report"           // it is named in the log and in `caelum status`
	foreignKillOthers = "kill-other-users" // it is also ended if it can harm another user
	foreignKill       = "kill"             // it is also ended if it is of the job's user
)

// stranger is a process on a leased slice that is not its job's. Start tells it from a later process with its pid.
type stranger struct {
	gpu.Process
	why string
}

// strangerOn is the key of log lines about strangers: a user can start many.
type strangerOn struct {
	uuid string
	job  uint32
}

// endedOn is the key of log lines about ended processes.
type endedOn struct{ uuid string }

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
		} else if a.mayLog(strangerOn{u.UUID, job}) {
			a.log.WithField("job", job).WithField("gpu", u.GPU).WithField("uuid", u.UUID).Warnf(
				"a process that is not the job's uses its slice: %v, %s", p, why)
		}
		found[pid] = stranger{p, why}
	}
	a.seen.mu.Lock()
	u.strangers = found
	a.seen.mu.Unlock()
	var end []gpu.Process
	for _, s := range found {
		if a.cfg.Foreign == foreignKill || a.cfg.Foreign == foreignKillOthers && !s.Is(uid) {
			end = append(end, s.Process)
		}
	}
	a.endStrangers(u, end, job, uid)
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

// strangeness says why a process is not a job's. Where Slurm names the cgroups of jobs by their id, the cgroup decides,
// else the user.
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

// slurmJob is the job that a process belongs to by its cgroups: /slurm/uid_U/job_J/... or
// /system.slice/slurmstepd.scope/job_J/..., where the names have slurmd's node if several run on one host. Named is
// whether it is below one of Slurm's; job is 0 where a job's cgroup has another name (its SLUID, from Slurm 26.05 on).
// A user can make cgroups below user.slice, under any name.
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

// endStrangers ends processes that use a job's slice, those that still do. A process with a root id is left alone.
func (a *Agent) endStrangers(u *usage, list []gpu.Process, job, uid uint32) {
	list = slices.DeleteFunc(list, func(p gpu.Process) bool { return slices.Contains(p.UIDs[:], 0) })
	if len(list) == 0 {
		return
	}
	if _, _, ok := a.seen.owner(u); !ok {
		return
	}
	ended, left := a.procs.Kill(list, func(now gpu.Process) bool {
		_, why := a.strange(now.PID, job, uid)
		if why == "" || slices.Contains(now.UIDs[:], 0) {
			return false
		}
		pids, err := a.hw.Processes(u.GPU, u.in.GI)
		return err == nil && slices.Contains(pids, now.PID)
	})
	a.ended(u.GPU, u.UUID, ended, left)
}

// ended logs that processes were ended, or could not be, once in a while for each instance.
func (a *Agent) ended(g int, uuid string, ended, left []gpu.Process) {
	if len(ended)+len(left) == 0 || !a.mayLog(endedOn{uuid}) {
		return
	}
	log := a.log.WithField("gpu", g).WithField("uuid", uuid)
	if len(ended) > 0 {
		log.Warnf("ended a process on a slice that is not its: %s", describe(ended))
	}
	if len(left) > 0 {
		log.Errorf("couldn't end a process on a slice that is not its: %s", describe(left))
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
