package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
	"caelum/internal/node/usage"
)

// strangerOn is the key for rate-limiting the log lines about foreign processes. A user can start many foreign
// processes.
type strangerOn struct {
	uuid string
	job  uint32
}

// endedOn is the key for rate-limiting the log lines about processes that the agent has ended.
type endedOn struct{ uuid string }

// checkSample checks a sample of a job's slice. It is called by the GPU's sampler.
func (a *Agent) checkSample(job, uid uint32, s usage.Slice, use gpu.Use) {
	if s.Fraction() {
		a.checkFraction(job, s, use)
		return
	}
	a.checkProcesses(job, uid, s, slices.Concat(use.PIDs, use.Others))
}

// checkProcesses checks whether the processes on a job's slice belong to the job. It logs the foreign processes and
// ends those selected by foreign_processes.
func (a *Agent) checkProcesses(job, uid uint32, s usage.Slice, pids []int) {
	in := a.node.Held(job, api.Slice{GPU: s.GPU, UUID: s.UUID})
	if in == nil {
		return // the job released the slice after the sample
	}
	a.node.Lock()
	before := in.Strangers
	a.node.Unlock()
	found := map[int]state.Stranger{}
	for _, pid := range pids {
		p, why := a.strange(pid, job, uid)
		if why == "" {
			continue
		}
		if known, ok := before[pid]; ok && known.Start == p.Start {
			p = known.Process
		} else if a.mayLog(strangerOn{s.UUID, job}) {
			a.log.WithField("job", job).WithField("gpu", s.GPU).WithField("uuid", s.UUID).Warnf(
				"a process outside the job is using its slice: %v, %s", p, why)
		}
		found[pid] = state.Stranger{Process: p, Why: why}
	}
	a.node.Lock()
	if in.Job == job {
		in.Strangers = found
	}
	a.node.Unlock()
	var end []gpu.Process
	for _, f := range found {
		if a.cfg.Foreign == config.ForeignKill || a.cfg.Foreign == config.ForeignKillOthers && !f.Is(uid) {
			end = append(end, f.Process)
		}
	}
	a.endStrangers(s, end, job, uid)
}

// strange returns a process and the reason why it does not belong to a job. The reason is empty if the process
// belongs to the job or to root, or if it has ended.
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

// strangeness returns the reason why a process with the given cgroups does not belong to a job of the user with the
// given uid, or an empty string if it does. If the name of the cgroup contains a job id, the job ids are compared;
// otherwise, the users are compared. The argument jobCgroups is true if Slurm puts every process of a job into a cgroup
// of its own.
func strangeness(p gpu.Process, cgroups []string, job, uid uint32, jobCgroups bool) string {
	in, named := gpu.SlurmJob(cgroups)
	switch {
	case named && in == job:
		return ""
	case named && in != 0:
		return fmt.Sprintf("of job %d", in)
	case !named && jobCgroups:
		return "of no job"
	case !p.Is(uid):
		return fmt.Sprintf("of a user other than the job's (uid %d)", uid)
	}
	return ""
}

// jobCgroups reports whether Slurm puts every process of a job into a cgroup of that job.
func (a *Agent) jobCgroups() bool {
	a.slurmMu.Lock()
	defer a.slurmMu.Unlock()
	return a.slurm != nil && a.slurm.Has("ProctrackType", "proctrack/cgroup")
}

// endStrangers ends the processes in list that still use the job's slice without belonging to the job. It never ends a
// process that has root among its user ids.
func (a *Agent) endStrangers(s usage.Slice, list []gpu.Process, job, uid uint32) {
	list = slices.DeleteFunc(list, func(p gpu.Process) bool { return slices.Contains(p.UIDs[:], 0) })
	if len(list) == 0 || a.node.Held(job, api.Slice{GPU: s.GPU, UUID: s.UUID}) == nil {
		return
	}
	ended, left := a.procs.Kill(list, func(now gpu.Process) bool {
		_, why := a.strange(now.PID, job, uid)
		if why == "" || slices.Contains(now.UIDs[:], 0) {
			return false
		}
		pids, err := a.hw.Processes(s.GPU, s.GI)
		return err == nil && slices.Contains(pids, now.PID)
	})
	a.ended(s.GPU, s.UUID, ended, left)
}

// ended logs the processes that the agent has ended and those that it could not end, at most once per logInterval for
// each instance.
func (a *Agent) ended(g int, uuid string, ended, left []gpu.Process) {
	if len(ended)+len(left) == 0 || !a.mayLog(endedOn{uuid}) {
		return
	}
	log := a.log.WithField("gpu", g).WithField("uuid", uuid)
	if len(ended) > 0 {
		log.Warnf("killed a process that was not allowed to use the slice: %s", describe(ended))
	}
	if len(left) > 0 {
		log.Errorf("couldn't kill a process that was not allowed to use the slice: %s", describe(left))
	}
}

// noteOn describes the processes that are using an instance or have it open but do not belong to its job. If there are
// none, it returns the reason why the driver did not destroy the instance. The caller holds the node's lock.
func noteOn(in *state.Instance) string {
	var names []string
	for _, s := range in.Strangers {
		names = append(names, fmt.Sprintf("%v, %s", s.Process, s.Why))
	}
	slices.Sort(names)
	if len(names) > maxNoted {
		names = append(names[:maxNoted], "...")
	}
	if len(names) > 0 {
		return "used by " + strings.Join(names, "; ")
	}
	return cmp.Or(in.Note, in.Blocked)
}
