package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mend repairs every part of the cluster and ends all remaining faults.
func (c *campaign) mend() error {
	units := []string{"munged", "slurmdbd", "slurmctld", "watcher", "watcher2"}
	for _, node := range c.nodes() {
		units = append(units, "agent-"+node, "slurmd-"+node)
	}
	for _, unit := range units {
		c.cluster.KillUnit(unit, "CONT") // an error means that the unit is not running
		if err := c.startUnit(unit); err != nil {
			return fmt.Errorf("mend %s: %w", unit, err)
		}
	}
	for _, node := range c.nodes() {
		for _, dir := range []string{"/var/lib/caelum", "/run/caelum/jobs"} {
			c.root(node, "bash", "-c", "rm -f "+dir+"/filler*")
		}
		c.root(node, "nvml-emulator", "fault", "clear")
		c.root(node, "nvml-emulator", "latency", "off")
	}
	c.mu.Lock()
	broken := slices.Clone(c.broken)
	c.mu.Unlock()
	for _, b := range broken {
		if b.failed {
			if err := b.end(b); err != nil {
				return fmt.Errorf("mend %s %s: %w", b.name, b.node, err)
			}
			b.failed = false
		}
	}
	return nil
}

// calmLimit is the maximum time until a storm's last job ends once all faults have been repaired.
const calmLimit = 3 * time.Minute

// calm waits until all jobs have ended, and checks why pending jobs are waiting. It cancels jobs that can never start
// and jobs that have not ended within calmLimit.
func (c *campaign) calm(began time.Time) error {
	w := &waitWatch{campaign: c, since: map[string]time.Time{}, completing: map[string]time.Time{}}
	failed := 0
	for {
		q, err := c.readQueue()
		if err != nil {
			if failed++; failed > 10 {
				return err
			}
			c.time.add("%v", err)
		} else {
			failed = 0
			c.adoptRest()
			c.resumeForgotten(q)
			for _, node := range c.nodes() {
				if c.had(ledgerErrors, node, time.Time{}, time.Now()) {
					c.resumeDefective(q, node)
				}
			}
			if time.Since(began) > lostAfter {
				c.cancelEach(slices.DeleteFunc(q.live(), func(j queued) bool { return !c.lost(j) }),
					"slurmctld shows the job as running, but it has no process")
			}
			w.check(q, c.latest())
			left := slices.DeleteFunc(q.live(), q.never)
			if len(left) == 0 && c.releasing.Load() == 0 {
				break
			}
			if time.Since(began) > calmLimit {
				if left = slices.DeleteFunc(left, c.unindexed); len(left) == 0 {
					break
				}
				for _, j := range left {
					c.time.add("job %s (%s) is %s (%s) %v after every fault was repaired", j.id, j.name, j.state,
						j.reason, calmLimit)
				}
				c.found.add(&c.time, ruleWaits, "%d jobs have not ended %v after every fault was repaired: %s",
					len(left), calmLimit, names(left))
				break
			}
		}
		if !sleep(c.ctx, time.Second) {
			return c.ctx.Err()
		}
	}
	return c.cancelRest()
}

// unindexed reports whether slurmctld refuses to update a job because it waits for slurmdbd's index of the job. If
// slurmctld 22.05.8 was killed soon after the submission, this can last forever, and no agent can release the job.
func (c *campaign) unindexed(j queued) bool {
	return j.state == "PENDING" && c.had(slurmctldKill, "", time.Time{}, time.Now()) &&
		strings.Contains(c.tell("", "scontrol", "update", "jobid="+j.id, "comment="), "DB index is being set")
}

// lostAfter is the time after the end of the storm at which a running job without a process counts as lost.
const lostAfter = 25 * time.Second

// lost reports whether Slurm has lost a job: slurmctld shows it as running, it has no process, and one of Slurm's own
// daemons had a fault. This happens if slurmd is killed during the prolog, or if slurmctld is killed before it saves
// the end of the job. slurmctld 22.05.8 ends a lost job only at its time limit.
func (c *campaign) lost(j queued) bool {
	alive := slices.ContainsFunc(c.latest().Procs, func(p proc) bool { return p.Job == j.raw })
	return j.state == "RUNNING" && !alive && slices.ContainsFunc(j.on, func(node string) bool {
		return c.active("slurmd", node, j.started.Add(-time.Second), time.Now()) ||
			c.active("slurmctld", "", j.started.Add(-time.Second), time.Now())
	})
}

// resumeForgotten resumes nodes that are drained because slurmctld lost its last state when it was killed. slurmctld
// may then show a node as drained even though the campaign had resumed it, or reassign the ids of its last jobs and
// drain a node because of "Duplicate jobid". If it is killed after it has sent a launch, but before it sends the
// request for the job's prolog, slurmd waits 20 s for this request, and slurmctld then drains the node because of
// "Prolog error" (24.11.5, without a prolog of Caelum). In these cases, an administrator has to resume the node.
func (c *campaign) resumeForgotten(q queue) {
	for _, node := range c.nodes() {
		if l := q.nodes[node]; len(l.States) == 0 || up(l) || !c.active("slurmctld", "", time.Time{}, time.Now()) {
			continue
		}
		record := c.tell("", "scontrol", "-o", "show", "node", node)
		forgot := strings.Contains(record, " Reason=Duplicate jobid") ||
			strings.Contains(record, " Reason=Prolog error") && c.unrequested(node)
		if !forgot && !strings.Contains(record, " Reason=chaos ") {
			continue
		}
		c.time.add("resumed %s, which slurmctld had drained after losing its last state", node)
		if forgot {
			b := &breaking{
				campaign: c,
				fault:    fault{name: "forgotten-launch", part: "node", ends: sentBack},
				node:     node,
				from:     time.Now(),
				to:       time.Now(),
			}
			c.mu.Lock()
			c.broken = append(c.broken, b) // slurmctld requeues a job whose launch fails
			c.mu.Unlock()
		}
		if err := c.root("", "scontrol", "update", "nodename="+node, "state=resume"); err != nil {
			c.time.add("%v", err)
		}
	}
}

// unrequested reports whether slurmd has waited for the request for a job's prolog in vain.
func (c *campaign) unrequested(node string) bool {
	log, err := c.cluster.Log("slurmd-" + node)
	return err == nil && strings.Contains(log, "REQUEST_LAUNCH_PROLOG notification failed")
}

// cancelRest cancels the remaining jobs.
func (c *campaign) cancelRest() error {
	for range 3 {
		q, err := c.readQueue()
		if err != nil {
			return err
		}
		if len(q.live()) == 0 {
			return nil
		}
		c.cancelEach(q.live(), "the campaign cancelled the remaining jobs")
		sleep(c.ctx, 2*time.Second)
	}
	return nil
}

func (c *campaign) cancelEach(jobs []queued, why string) {
	for _, j := range jobs {
		c.cause(j.name, "CANCELLED", why)
		c.time.add("cancelled job %s (%s), which was %s (%s): %s", j.id, j.name, j.state, j.reason, why)
		if err := c.root("", "scancel", j.id); err != nil {
			c.time.add("%v", err)
		}
	}
}
