package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/config"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/jobcgroup"
	"caelum/internal/node/state"
	"caelum/internal/node/usage"
	"caelum/internal/slurm"
)

// Fractions (package gpu) differ from MIG slices in three ways:
//
//   - The device file of a GPU gives access to all of its fractions. Only the users of jobs with a fraction can open
//     it.
//   - A job's memory is limited by its cgroup. The agent creates this cgroup before Slurm does, sets the limit and
//     reads it back before it grants the lease. The plugin compares the cgroup's inode number before it starts a task.
//   - The driver does not charge all memory to a cgroup (docs/security.md). The agent therefore checks each sample: it
//     ends jobs that use more than their limit, and processes that do not belong to a job with a part of the GPU.

// jobGroups creates the cgroups of jobs. Except in tests, it is a *jobcgroup.Tree.
type jobGroups interface {
	gpu.JobGroups
	// Made lists the cgroups that Make has created and Remove has not removed.
	Made() ([]jobcgroup.Group, error)
	// Find returns the cgroup of a job with the given inode number.
	Find(number uint64) (jobcgroup.Group, bool)
}

// withFractions returns hw with the fractions that the site has configured, or nil if it has configured none.
func (m *machine) withFractions(cfg config.Config, hw gpu.Hardware) *gpu.Fractions {
	limits, ok := hw.(gpu.Limiter)
	if cfg.FractionLimits == config.LimitsSoftMig {
		limits, ok = m.softMig, true
	}
	if len(cfg.Fractions) == 0 || !ok {
		return nil
	}
	problem := limits.LimitsProblem()
	if problem == "" && m.groups == nil {
		if tree, err := gpu.OpenJobGroups(limits, jobcgroup.Options{Node: cfg.Node}, m.proc); err == nil {
			m.groups = tree
		} else {
			problem = err.Error()
		}
	}
	return gpu.WithFractions(hw, gpu.FractionOptions{
		Units: cfg.Fractions, Problem: problem, Limits: limits, Groups: m.groups, Cgroups: m.procs.Cgroups,
	})
}

// logUnused logs the types in the fractions key that divide none of the node's GPUs.
func logUnused(cfg config.Config, n *state.Node, log *logrus.Entry) {
	var gpus []gpu.GPU
	for _, c := range n.Cards {
		gpus = append(gpus, c.GPU.GPU)
	}
	for _, why := range gpu.UnusedTypes(cfg.Fractions, gpus) {
		log.Info(why)
	}
}

// divided reports whether a GPU has fractions.
func (a *Agent) divided(g int) bool { return a.fractions != nil && a.fractions.Divided(g) }

// limitMemory creates the cgroup of a job with fractions, and sets its memory limit on each of its GPUs. It records the
// cgroup in the lease. The error is api.NotNow if slurmctld does not respond. After any other error, the job must not
// start, because its memory would not be limited.
func (a *Agent) limitMemory(ctx context.Context, lease *api.Lease, held []*state.Instance, sluid string) error {
	if !slices.ContainsFunc(lease.Slices, func(s api.Slice) bool { return a.divided(s.GPU) }) {
		return nil
	}
	c, err := a.slurmConfig(ctx)
	switch {
	case err != nil:
		return api.NotNow(err.Error())
	case !c.RelativeIndex() || !c.Has("ProctrackType", "proctrack/cgroup"):
		return errors.New("parts of a GPU without MIG need ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup " +
			"in slurm.conf and ConstrainDevices=yes in cgroup.conf")
	case twoOnOne(held):
		return errors.New("a job cannot hold two parts of one GPU without MIG; request one larger part")
	}
	if lease.Cgroup, err = a.makeGroup(c.JobCgroup(lease.Job, sluid)); err != nil {
		return err
	}
	failpoint.Hit(failpoint.LimitGrouped)
	for k, s := range lease.Slices {
		if !a.divided(s.GPU) {
			continue
		}
		a.endOutside(s.GPU)
		if err := a.fractions.Limit(s.GPU, held[k].GI, lease.Cgroup); err != nil {
			return errors.Join(err, a.unlimit(*lease, held), a.groups.Remove(lease.Cgroup))
		}
	}
	failpoint.Hit(failpoint.LimitSet)
	return nil
}

// makeGroup creates the cgroup of a run. It removes that of an earlier run of the job, because the plugin's BPF map may
// still allow it the devices of that run.
func (a *Agent) makeGroup(name string) (jobcgroup.Group, error) {
	old, err := a.groups.Make(name)
	if err == nil {
		err = a.groups.Remove(old)
	}
	if err != nil {
		return old, err
	}
	return a.groups.Make(name)
}

// twoOnOne reports whether two of a job's instances are fractions of one GPU. A task would see them as one device.
func twoOnOne(held []*state.Instance) bool {
	for k, in := range held {
		for _, other := range held[:k] {
			if in.GI < gpu.FullGI && in.GPU == other.GPU {
				return true
			}
		}
	}
	return false
}

// unlimit removes the memory limits of a lease that was not granted. If it cannot, it sets the instances aside.
func (a *Agent) unlimit(lease api.Lease, held []*state.Instance) (errs error) {
	for k, s := range lease.Slices {
		if a.divided(s.GPU) {
			if err := a.fractions.Unlimit(s.GPU, held[k].GI); err != nil {
				errs = errors.Join(errs, err, a.setAside(s.GPU, held[k], errors.Is(err, gpu.ErrInUse)))
			}
		}
	}
	return errs
}

// refuseUnlimited ends the start of a job whose memory cannot be limited.
func (a *Agent) refuseUnlimited(ctx context.Context, t *attempt, lease api.Lease, cause error) (*api.Lease, error) {
	a.node.Forget(t.lease.Job)
	if isNotNow(cause) {
		return nil, cause
	}
	missing := fmt.Sprintf("%s:%d", lease.Slices[0].Profile, len(lease.Slices))
	refused, err := a.requeueOrRefuse(ctx, t.job, t.lease,
		fmt.Sprintf("%s could not limit the job's GPU memory: %v", a.cfg.Node, cause), missing)
	return &refused, err
}

// openFiles lets the user of a lease open an instance's files.
func (a *Agent) openFiles(c *state.Card, in *state.Instance, l api.Lease) error {
	if in.GI >= gpu.FullGI {
		return a.caps.Open(c.Minor, a.node.HardwareOf(in), l.UID)
	}
	return a.setUser(c, l.Job, &l.UID)
}

// closeFiles lets only root open an instance's files. If it is a fraction, it removes only the job's user.
func (a *Agent) closeFiles(c *state.Card, in *state.Instance, job uint32) error {
	if in.GI >= gpu.FullGI {
		return a.caps.Close(c.Minor, a.node.HardwareOf(in))
	}
	return a.setUser(c, job, nil)
}

// setUser records the user of a job with a fraction of the GPU, or removes the job if uid is nil, and lets exactly the
// users of such jobs open the GPU's device file. Job 0 changes nothing but the file.
func (a *Agent) setUser(c *state.Card, job uint32, uid *uint32) error {
	c.DeviceFile.Lock()
	defer c.DeviceFile.Unlock()
	a.node.Lock()
	if uid == nil {
		delete(c.Users, job)
	} else {
		c.Users[job] = *uid
	}
	uids := slices.Compact(slices.Sorted(maps.Values(c.Users)))
	a.node.Unlock()
	return a.caps.Users(c.Minor, uids)
}

// closeFraction removes the memory limit of a released instance and the job's cgroup. If the job still has processes,
// it sets the instance aside, so that they stay limited.
func (a *Agent) closeFraction(job uint32, g int, in *state.Instance) error {
	if in.GI < gpu.FullGI {
		a.endOutside(g)
	} else if used, err := a.inUse(g, in); used || err != nil {
		return err
	}
	err := a.fractions.Unlimit(g, in.GI)
	if err == nil {
		a.endFileHolders(job, g, in)
		return nil
	}
	a.log.WithError(err).WithField("job", job).
		Warn("couldn't remove a memory limit; the slice will not be offered yet")
	a.node.Lock()
	in.Blocked = err.Error()
	a.node.Unlock()
	return a.setAside(g, in, errors.Is(err, gpu.ErrInUse))
}

// remain returns an error while processes of the last job of an instance remain, if its GPU has fractions. The driver
// does not list them if they do not use the GPU, but their memory would no longer be limited.
func (a *Agent) remain(g int, in *state.Instance) error {
	if !a.divided(g) {
		return nil
	}
	return a.fractions.InUse(g, in.GI)
}

// endFileHolders ends the processes of a job's user that have the GPU's device file open, but belong to no job with a
// part of the GPU. They opened it while the job ran, and could use it later, or keep the GPU from becoming a full GPU.
func (a *Agent) endFileHolders(job uint32, g int, in *state.Instance) {
	l := a.leaseOf(job)
	d, err := a.caps.Device(a.node.Cards[g].Minor)
	if l == nil || err != nil || in.GI == gpu.FullGI || !a.endsHolders() {
		return
	}
	held, err := a.scan([]gpu.Device{d})
	if err != nil {
		a.log.WithError(err).WithField("gpu", g).Warn("couldn't search for processes that keep the GPU's file open")
	}
	theirs := func(p gpu.Process) bool { return startedBy(p, l.UID) && !a.fractions.Belongs(g, p.PID) }
	found := slices.DeleteFunc(held.Open[d], func(p gpu.Process) bool { return !theirs(p) })
	ended, left := a.procs.Kill(found, theirs)
	a.ended(g, in.UUID, ended, left)
}

// keepFractions tells the driver's wrapper which instances of the ledger exist. For fractions, the ledger is the truth.
func (a *Agent) keepFractions() {
	for g, c := range a.node.Cards {
		if !a.divided(g) {
			continue
		}
		for _, in := range c.Ours {
			var group jobcgroup.Group
			if l := a.node.Leases[in.Job]; l != nil && in.Job != 0 {
				if group = l.Cgroup; in.GI < gpu.FullGI {
					c.Users[in.Job] = l.UID
				}
			} else if text, err := a.ledger.Meta(stuckKey(in.UUID)); err == nil && in.Stuck {
				json.Unmarshal([]byte(text), &group)
			}
			a.fractions.Keep(g, a.node.HardwareOf(in), group)
		}
	}
}

// stuckKey returns the ledger's key for the cgroup of the last job of a stuck instance. Until this cgroup is empty,
// also an agent that starts later must not offer the instance.
func stuckKey(uuid string) string { return "cgroup " + uuid }

// keepGroup records the cgroup of the job that holds an instance of a GPU with fractions.
func (a *Agent) keepGroup(g int, in *state.Instance) error {
	a.node.Lock()
	l := a.node.Leases[in.Job]
	a.node.Unlock()
	if l == nil || !a.divided(g) {
		return nil
	}
	text, err := json.Marshal(l.Cgroup)
	return errors.Join(err, a.ledger.SetMeta(stuckKey(in.UUID), string(text)))
}

// keepLost tells the driver's wrapper which instances the lease file of a lost lease names, and finds the lease's
// cgroup.
func (a *Agent) keepLost(l *api.Lease) {
	if a.fractions == nil || l.Cgroup.Inode == 0 {
		return
	}
	if g, ok := a.groups.Find(l.Cgroup.Inode); ok {
		l.Cgroup = g
	} else {
		a.log.WithField("job", l.Job).Error("couldn't find the cgroup of a job with limited memory")
	}
	for k := range l.Slices {
		s := &l.Slices[k]
		if g, in, ok := a.lostFraction(s.UUID); ok {
			s.UUID = in.UUID
			a.fractions.Keep(g, in, l.Cgroup)
		}
	}
}

// limitAgain sets the memory limits of all leases again when the agent starts. If it cannot, the samples show it.
func (a *Agent) limitAgain() {
	for _, l := range a.node.Leases {
		for _, s := range l.Slices {
			in := a.node.Held(l.Job, s)
			if in == nil || l.Cgroup.Path == "" || !a.divided(s.GPU) {
				continue
			}
			if err := a.fractions.Limit(s.GPU, in.GI, l.Cgroup); err != nil {
				a.log.WithError(err).WithField("job", l.Job).Error("couldn't limit the GPU memory of a job again")
			}
		}
	}
}

// removeGroups removes the cgroups that an agent made for jobs that did not start. The caller must ensure that no
// prolog is running.
func (a *Agent) removeGroups() {
	if a.fractions == nil || a.groups == nil {
		return
	}
	made, err := a.groups.Made()
	a.node.Lock()
	for _, l := range a.node.Leases {
		made = slices.DeleteFunc(made, func(g jobcgroup.Group) bool { return g == l.Cgroup })
	}
	a.node.Unlock()
	for _, g := range made {
		if empty, emptyErr := a.groups.Empty(g); emptyErr == nil && empty {
			err = errors.Join(err, a.groups.Remove(g))
		}
	}
	if err != nil {
		a.log.WithError(err).Warn("couldn't remove the cgroups of jobs that have not started")
	}
}

// removeGroup removes the cgroup of a job with a full GPU of a node that has had no fractions since its agent started.
// If Slurm still uses the cgroup, Slurm removes it.
func (a *Agent) removeGroup(l api.Lease) {
	if a.fractions != nil || l.Cgroup.Path == "" {
		return
	}
	if err := new(jobcgroup.Tree).Remove(l.Cgroup); err != nil {
		a.log.WithError(err).WithField("job", l.Job).Debug("Slurm will remove the job's cgroup")
	}
}

// unlimited is a job whose memory was not limited as it should be in the last samples.
type unlimited struct {
	job    uint32
	slice  usage.Slice
	reason string
}

// unlimitedSamples is the number of samples after which such a job is ended. They are consecutive, except if the job
// used more memory than its limit, because a program could do so in every second sample.
const unlimitedSamples = 2

// checkFraction checks a sample of an instance on a GPU with fractions. It ends processes that belong to no job with a
// part of the GPU, because their memory is not limited. It is called by the GPU's sampler.
func (a *Agent) checkFraction(job uint32, s usage.Slice, use gpu.Use) {
	in := a.node.Held(job, api.Slice{GPU: s.GPU, UUID: s.UUID})
	if in == nil {
		return // the job released the slice after the sample
	}
	a.node.Lock()
	if in.Job != job { // it already belongs to another job
		a.node.Unlock()
		return
	}
	in.Overused = in.Overused || use.Overused
	if use.Unlimited != "" {
		in.Unlimited++
	} else if !in.Overused {
		in.Unlimited = 0
	}
	end := use.Unlimited != "" && in.Unlimited%unlimitedSamples == 0 // again, if slurmctld did not respond
	a.node.Unlock()
	if use.Restored && a.mayLog(strangerOn{s.UUID, job}) {
		a.log.WithField("job", job).WithField("gpu", s.GPU).
			Warn("another program had removed the job's memory limit or cgroup controller; set it again")
	}
	if end {
		select {
		case a.ends <- unlimited{job, s, use.Unlimited}:
		default: // the next samples try again
			a.node.Lock()
			in.Unlimited--
			a.node.Unlock()
		}
	}
	a.endOthers(s.GPU, use.Others)
}

// endOutside ends the processes on a GPU that belong to no job with a part of it. Between two samples, also after the
// last job, a process outside the jobs may have started, whose memory the next job would lack.
func (a *Agent) endOutside(g int) {
	if pids, err := a.hw.Processes(g, gpu.FullGI); err == nil {
		a.endOthers(g, pids)
	}
}

// endOthers ends those of the given processes on a GPU that belong to no job with a part of it.
func (a *Agent) endOthers(g int, pids []int) {
	var others []gpu.Process
	for _, pid := range pids {
		p, err := a.procs.Read(pid)
		if err != nil || p.Owner == 0 || a.fractions.Belongs(g, pid) { // not UIDs, because of setuid programs
			continue
		}
		others = append(others, p)
	}
	if len(others) == 0 {
		return
	}
	ended, left := a.procs.Kill(others, func(now gpu.Process) bool {
		pids, err := a.hw.Processes(g, gpu.FullGI)
		return err == nil && slices.Contains(pids, now.PID) && !a.fractions.Belongs(g, now.PID)
	})
	a.ended(g, a.node.Cards[g].UUID, ended, left)
}

// endUnlimited ends the jobs whose memory is not limited, until ctx is done.
func (a *Agent) endUnlimited(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-a.ends:
			a.endJob(ctx, u)
		}
	}
}

// endJob ends a job with a reason, and kills its processes on the GPU, because a job can ignore scancel for KillWait.
func (a *Agent) endJob(ctx context.Context, u unlimited) {
	lease := a.leaseOf(u.job)
	if lease == nil {
		return
	}
	log := a.log.WithField("job", u.job).WithField("gpu", u.slice.GPU)
	log.Error("ending the job: " + u.reason)
	var own []gpu.Process
	pids, err := a.hw.Processes(u.slice.GPU, u.slice.GI)
	for _, pid := range pids {
		if p, err := a.procs.Read(pid); err == nil && p.Owner != 0 {
			own = append(own, p)
		}
	}
	still := func(j slurm.Job) bool { return j.Restarts == lease.Restart }
	why := fmt.Sprintf("caelum: GPU %d: %s; the job was ended", u.slice.GPU, u.reason)
	within, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err = errors.Join(err, a.ctl.EndJob(within, u.job, why, still))
	a.procs.Kill(own, func(gpu.Process) bool {
		return a.node.Held(u.job, api.Slice{GPU: u.slice.GPU, UUID: u.slice.UUID}) != nil
	})
	if err != nil {
		log.WithError(err).Error("couldn't end a job whose GPU memory is not limited; killed its processes on the GPU")
	}
}

// endTimeout limits the time for which endJob waits for slurmctld before it kills the job's processes. Until then, the
// job's neighbours lack memory.
const endTimeout = 2 * time.Second
