package agent

import (
	"slices"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// schedule is slurmctld's scheduler.
func (t *trial) schedule() {
	for t.ctx.Err() == nil {
		time.Sleep(t.between(100*time.Millisecond, 1500*time.Millisecond))
		t.scheduler.Lock()
		if t.setClock(); !t.away && !t.frozen {
			for _, name := range t.names {
				t.sound(name, "the last write")
			}
			for _, id := range t.fake.Tick() {
				t.logf("job %d starts", id)
			}
		}
		t.scheduler.Unlock()
	}
}

// users submit jobs, and jobs end.
func (t *trial) users() {
	for t.ctx.Err() == nil {
		time.Sleep(t.between(100*time.Millisecond, 5*time.Second))
		t.scheduler.Lock()
		if t.setClock(); !t.away && !t.closed {
			if t.chance(0.55) {
				t.submitRandom()
			} else {
				t.endOne()
			}
		}
		t.scheduler.Unlock()
	}
}

// submitRandom submits a job unless many jobs wait. The caller holds t.scheduler.
func (t *trial) submitRandom() {
	if q, _ := t.fake.Queue(t.ctx); len(q.Waiting) >= 6 {
		return
	}
	j := job(1, soakProfiles[t.below(len(soakProfiles))]+":1")
	switch t.below(8) {
	case 0:
		j = job(2, "1g.5gb:2")
	case 1:
		j.NumNodes = 2
	}
	if t.chance(0.5) {
		j.TimeLimit = t.between(10*time.Minute, time.Hour)
	}
	id, err := t.fake.Submit(j)
	t.logf("submitted job %d: %v %v", id, j.PerNode, err)
	t.notifyPlanners() // job_submit.lua writes to the trigger file
}

// endOne ends a random job all of whose prologs have ended. The caller holds t.scheduler.
func (t *trial) endOne() {
	q, _ := t.fake.Queue(t.ctx)
	all := slices.DeleteFunc(q.All, func(j slurm.Job) bool { return !j.Holds() || !t.serves(j) })
	if len(all) == 0 {
		return
	}
	id := all[t.below(len(all))].ID
	t.logf("job %d ends: %v", id, t.fake.End(id))
	notifyOnce(t.epilogs, false)
}

// serves reports whether all prologs of a job have ended.
func (t *trial) serves(j slurm.Job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range j.Nodes {
		if !t.prologsServed[leaseKey{j.ID, n}] {
			return false
		}
	}
	return true
}

// prolog is the plugin's prolog, which repeats its call while the agent cannot serve it.
func (t *trial) prolog(j slurm.Job, node string) {
	req := api.LeaseRequest{Restart: j.Restarts, UID: 20001, GID: 20001}
	for i := range j.Allocated[node].Total("gpu") {
		req.Slots = append(req.Slots, i)
	}
	for began := time.Now(); ; time.Sleep(time.Second) {
		l, err := t.agents[node].Lease(t.ctx, j.ID, req)
		if isNotNow(err) && time.Since(began) < time.Minute {
			continue
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case t.ctx.Err() != nil:
		case err != nil:
			t.t.Errorf("prolog of job %d on %s: %v", j.ID, node, err)
		case l.Error != "" || !serves(l.Slices, j):
			t.t.Errorf("job %d (%v) on %s got %+v", j.ID, j.PerNode, node, l)
		default:
			t.held[leaseKey{j.ID, node}], t.prologsServed[leaseKey{j.ID, node}] = *l, true
			t.overlaps(node)
		}
		return
	}
}

// epilog is the plugin's epilog.
func (t *trial) epilog(j slurm.Job, node string) {
	t.mu.Lock()
	delete(t.held, leaseKey{j.ID, node})
	t.mu.Unlock()
	if err := t.agents[node].Release(t.ctx, j.ID, j.Restarts); err != nil && t.ctx.Err() == nil {
		t.t.Errorf("epilog of job %d on %s: %v", j.ID, node, err)
	}
}

// runEpilogs runs the epilogs of the jobs that have ended.
func (t *trial) runEpilogs() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.epilogs:
			t.fake.RunEpilogs()
		}
	}
}
