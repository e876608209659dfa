package slurmtest

import (
	"errors"
	"fmt"
	"slices"

	"caelum/internal/slurm"
)

// ErrRefused is slurmctld's "Requested node configuration is not available".
var ErrRefused = errors.New("requested node configuration is not available")

// Submit puts a job into the queue and answers its id. Of j it takes what a submission says: name, user, partition,
// GRES, nodes, batch and requeue, begin time (Eligible), admin_comment; a Priority of 0 means one below all before it.
// It is refused if no node, the catalogue's counted, could ever take it.
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

// SubmitHeld is Submit with --hold, which refuses nothing.
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

// End has a job enter COMPLETING, from where RunEpilogs takes it to COMPLETED: its tasks are gone and so is its part of
// GresUsed. A pending job is over at once.
func (f *Fake) End(id uint32) error { return f.end(id, "COMPLETED") }

// Cancel is scancel: End with the state CANCELLED.
func (f *Fake) Cancel(id uint32) error { return f.end(id, "CANCELLED") }

func (f *Fake) end(id uint32, final string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, err := f.job(id)
	switch {
	case err != nil:
		return err
	case j.State == "PENDING":
		j.State = final
	case j.Holds():
		j.State, j.final, j.End = "COMPLETING", final, f.now
	case j.State == "COMPLETING":
		j.final = final
	default:
		return fmt.Errorf("job %d is %s: %w", id, j.State, slurm.ErrJobState)
	}
	return nil
}

// requeue ends a run so that the job is pending after it.
func (f *Fake) requeue(j *job) {
	j.State, j.final = "COMPLETING", "PENDING"
	j.Restarts++
	j.Eligible = f.now.Add(requeueDelay)
	j.Start = j.Eligible
}

// RunEpilogs runs the epilogs of every COMPLETING job, node by node, lowest id first. A node is free for others when
// its epilog is done.
func (f *Fake) RunEpilogs() {
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

// Finish is End and then RunEpilogs.
func (f *Fake) Finish(id uint32) error {
	if err := f.End(id); err != nil {
		return err
	}
	f.RunEpilogs()
	return nil
}

// Forget drops a finished job's record, as slurmctld does after MinJobAge.
func (f *Fake) Forget(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j, ok := f.jobs[id]; ok && !j.Present() && j.State != "PENDING" {
		delete(f.jobs, id)
	}
}

// Restart is a restart of slurmctld, or scontrol reconfigure: every node's GRES is slurm.conf's again, and what the
// running jobs hold is not in "used" any more. (The real one forgets one job, all or none; this is the worst.)
func (f *Fake) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reset()
	for _, j := range f.jobs {
		j.forgotten = j.forgotten || j.Holds()
	}
}

// Configure changes a node's GRES in slurm.conf, which counts from the next Restart on.
func (f *Fake) Configure(name string, gres []slurm.GRES) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.node(name)
	if err == nil {
		n.Gres = slices.Clone(gres)
	}
	return err
}

// Recount is a restart of slurmctld, or scontrol reconfigure, that counts the slices of running jobs as it does for
// jobs on that many nodes: once for each node, if slurm.conf gives their type as 0. A job's end subtracts them once,
// and the rest stays in used.
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

// Unregister has slurmctld wait for a node's slurmd, as it does after its own restart; Register is slurmd's coming.
func (f *Fake) Unregister(name string) error { return f.register(name, true) }

// Register: see Unregister.
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

// RestartSlurmd is a restart of a node's slurmd, which registers anew: the filler jumps back to slurm.conf's count
// while the other types keep theirs (22.05). If what was last written did not add up to slurm.conf's total while jobs
// use some of it, the node drains; that the filler is too large by then has no such consequence.
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

func total(gres []slurm.GRES) int {
	n := 0
	for _, g := range gres {
		if g.Name == "mig" {
			n += g.Count
		}
	}
	return n
}

// Drain keeps jobs off a node; an empty reason resumes it.
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
