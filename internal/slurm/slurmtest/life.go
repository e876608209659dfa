package slurmtest

import (
	"errors"
	"fmt"
	"slices"

	"caelum/internal/slurm"
)

// ErrRefused corresponds to slurmctld's error "Requested node configuration is not available".
var ErrRefused = errors.New("requested node configuration is not available")

// Submit adds a job to the queue and returns its id. It uses only the fields of j that a submission can set: name,
// user, partition, GRES, nodes, batch and requeue, begin time (Eligible) and admin_comment. If j.Priority is 0, the job
// is given a lower priority than all earlier jobs whose Priority was 0. Submit returns ErrRefused if no node, not even
// a catalogue node, can ever run the job.
func (f *Fake) Submit(j slurm.Job) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := f.add(j)
	if !f.possible(added) {
		delete(f.jobs, added.ID)
		return 0, ErrRefused
	}
	return added.ID, nil
}

// SubmitHeld is like Submit with --hold. slurmctld does not reject held jobs.
func (f *Fake) SubmitHeld(j slurm.Job) uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := f.add(j)
	added.hold("JobHeldUser")
	return added.ID
}

func (f *Fake) add(j slurm.Job) *job {
	f.lastID++
	f.priority--
	if j.Priority == 0 {
		j.Priority = f.priority
	}
	if j.Partition == "" {
		j.Partition = f.nodes[0].Partitions[0]
	}
	if j.NumNodes == 0 {
		j.NumNodes = max(1, len(j.ReqNodes))
	}
	j.ID, j.State, j.Reason, j.Submit = f.lastID, "PENDING", "None", f.now
	j.Nodes, j.Allocated, j.Restarts = nil, nil, 0
	added := &job{Job: j, basic: j.Priority}
	f.jobs[j.ID] = added
	return added
}

// End makes a running job COMPLETING: its tasks have ended, and slurmctld no longer counts its GRES as used.
// RunEpilogs then makes it COMPLETED. A pending job becomes COMPLETED immediately.
func (f *Fake) End(id uint32) error { return f.end(id, "COMPLETED") }

// Fail is like End, but the batch script ends with an exit status other than 0, and the final state is FAILED.
func (f *Fake) Fail(id uint32) error { return f.end(id, "FAILED") }

// Cancel simulates scancel: it is like End, but the final state is CANCELLED.
func (f *Fake) Cancel(id uint32) error { return f.end(id, "CANCELLED") }

func (f *Fake) end(id uint32, final string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.endLocked(id, final)
}

// endLocked is like end. The caller holds the lock.
func (f *Fake) endLocked(id uint32, final string) error {
	j, err := f.job(id)
	switch {
	case err != nil:
		return err
	case j.State == "PENDING":
		j.State = final
	case j.Holds():
		j.State, j.final, j.End = "COMPLETING", final, f.now
		if final == "FAILED" {
			j.Reason = "NonZeroExitCode"
		}
	case j.State == "COMPLETING":
		j.final = final
	default:
		return fmt.Errorf("job %d is %s: %w", id, j.State, slurm.ErrJobState)
	}
	return nil
}

// requeue ends a job's run. After its epilogs, the job is pending again.
func (f *Fake) requeue(j *job) {
	j.State, j.final = "COMPLETING", "PENDING"
	j.Restarts++
	j.Eligible = f.now.Add(requeueDelay)
	j.Start = j.Eligible
}

// RunEpilogs runs the epilogs of all COMPLETING jobs, node by node, lowest job id first. Once a node's epilog has
// run, other jobs can start there. Like slurmd, it runs one epilog of a job at a time, even if several goroutines call
// it: a late copy would carry the restart count of a requeued job's next run, and would release that run's lease.
func (f *Fake) RunEpilogs() {
	f.epilogs.Lock()
	defer f.epilogs.Unlock()
	for {
		f.mu.Lock()
		var next *job
		for _, j := range f.jobs {
			if j.State == "COMPLETING" && (next == nil || j.ID < next.ID) {
				next = j
			}
		}
		if next == nil {
			f.mu.Unlock()
			return
		}
		seen, node, epilog := next.view(false), next.Nodes[0], f.epilog
		f.mu.Unlock()
		if epilog != nil {
			epilog(seen, node)
		}
		f.epilogDone(seen.ID, node)
	}
}

func (f *Fake) epilogDone(id uint32, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[id]
	j.Nodes = slices.DeleteFunc(slices.Clone(j.Nodes), func(n string) bool { return n == node })
	delete(j.alloc, node)
	if len(j.Nodes) == 0 && j.State == "COMPLETING" {
		j.State = j.final
	}
}

// Finish calls End and then RunEpilogs.
func (f *Fake) Finish(id uint32) error {
	if err := f.End(id); err != nil {
		return err
	}
	f.RunEpilogs()
	return nil
}

// Forget removes a finished job's record, as slurmctld does after MinJobAge.
func (f *Fake) Forget(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j, ok := f.jobs[id]; ok && !j.Present() && j.State != "PENDING" {
		delete(f.jobs, id)
	}
}

// Restart simulates a restart of slurmctld or `scontrol reconfigure`. Afterwards, every node has the GRES in
// slurm.conf, and slurmctld no longer counts running jobs' GRES as used. A real slurmctld may lose track of the GRES of
// all, some or none of the jobs; Restart simulates the worst case.
func (f *Fake) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reset()
	for _, j := range f.jobs {
		j.forgotten = j.forgotten || j.Holds()
	}
}

// Configure changes a node's GRES in slurm.conf. The next Restart applies this change.
func (f *Fake) Configure(name string, gres slurm.GRESList) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.node(name)
	if err == nil {
		n.Gres = slices.Clone(gres)
	}
	return err
}

// Recount simulates a restart of slurmctld, or `scontrol reconfigure`, after which slurmctld counts each running job's
// slices several times, as if the job were running on the given number of nodes. Only types whose count in slurm.conf
// is 0 are affected. When a job ends, its slices are subtracted only once, and the excess still counts as used.
func (f *Fake) Recount(nodes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reset()
	for _, j := range f.jobs {
		j.forgotten = j.forgotten && !j.Holds()
		for _, n := range f.nodes {
			for _, g := range j.alloc[n.Name] {
				configured := func(c slurm.GRES) bool { return c.Name == g.Name && c.Type == g.Type && c.Count > 0 }
				if j.Holds() && !slices.ContainsFunc(n.Gres, configured) {
					n.excess[kind{g.Name, g.Type}] += (nodes - 1) * g.Count
				}
			}
		}
	}
}

func (f *Fake) reset() {
	for _, n := range f.nodes {
		n.gres, n.total, n.excess = slices.Clone(n.Gres), total(n.Gres), map[kind]int{}
		n.drain = slices.DeleteFunc(slices.Clone(n.drain), func(s string) bool { return s == "INVALID_REG" })
	}
}

// Unregister puts a node into the state that it has after a restart of slurmctld, until the node's slurmd registers.
func (f *Fake) Unregister(name string) error { return f.register(name, true) }

// Register simulates the registration of a node's slurmd after Unregister.
func (f *Fake) Register(name string) error { return f.register(name, false) }

func (f *Fake) register(name string, un bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.node(name)
	if err == nil {
		n.unregistered = un
	}
	return err
}

// RestartSlurmd simulates a restart of a node's slurmd, which then re-registers. As in 22.05, this resets the count of
// the `closed` type to the one in slurm.conf, while the other types keep their counts. If jobs use gres/mig and the
// counts in the last update did not add up to the total in slurm.conf, the node is drained. The counts after the
// registration also add up to more than the total, but this does not cause a drain.
func (f *Fake) RestartSlurmd(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.slurmd = f.now
	using := 0
	for k, c := range f.used(n) {
		if k.name == "mig" {
			using += c
		}
	}
	has, found := total(n.Gres), n.total
	n.total = has
	if has != found && using > 0 {
		n.drain = []string{"DRAIN", "INVALID_REG"}
		n.reason = fmt.Sprintf("gres/mig count changed and jobs are using them (%d != %d)", has, found)
	}
	for i, g := range n.gres {
		for _, c := range n.Gres {
			if g.Name == "mig" && g.Type == "closed" && c.Name == g.Name && c.Type == g.Type {
				n.gres[i].Count = c.Count
			}
		}
	}
	return nil
}

func total(gres slurm.GRESList) int {
	n := 0
	for _, g := range gres {
		if g.Name == "mig" {
			n += g.Count
		}
	}
	return n
}

// Drain drains a node, or resumes it if the reason is empty.
func (f *Fake) Drain(name, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.reason, n.drain = reason, nil
	if reason != "" {
		n.drain = []string{"DRAIN"}
	}
	return nil
}
