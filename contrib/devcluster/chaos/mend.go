package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mend brings every part of the cluster back, whatever became of the faults: an end that failed is no excuse later.
func (c *campaign) mend() error {
	units := []string{"munged", "slurmdbd", "slurmctld", "watcher"}
	for _, node := range c.nodes() {
		units = append(units, "agent-"+node, "slurmd-"+node)
	}
	for _, unit := range units {
		c.cluster.KillUnit(unit, "CONT") // fails if it is down
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

// calmLimit is how long the jobs of a storm may take to end when nothing is broken any more.
const calmLimit = 3 * time.Minute

// calm waits until no job is left, and judges waits meanwhile. What is left after calmLimit, or waits for something
// that will not come, is cancelled.
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
			c.resumeDuplicates(q)
			if time.Since(began) > lostAfter {
				c.cancelEach(slices.DeleteFunc(q.live(), func(j queued) bool { return !c.lost(j) }), "Slurm has lost it")
			}
			w.check(q, c.latest())
			left := slices.DeleteFunc(q.live(), q.never)
			if len(left) == 0 && c.releasing.Load() == 0 {
				break
			}
			if time.Since(began) > calmLimit {
				for _, j := range left {
					c.time.add("job %s (%s) is %s (%s) %v after every fault was mended", j.id, j.name, j.state, j.reason, calmLimit)
				}
				c.found.add(&c.time, ruleWaits, "%d jobs are left %v after every fault was mended: %s", len(left), calmLimit, names(left))
				break
			}
		}
		if !sleep(c.ctx, time.Second) {
			return c.ctx.Err()
		}
	}
	return c.cancelRest()
}

// lostAfter is when every job of the storm that runs must have a process.
const lostAfter = 25 * time.Second

// lost reports whether slurmctld has a job as running that has no process, after one of Slurm's own daemons was broken.
// 22.05.8 leaves such a job until its time limit: slurmd was killed in its prolog, or slurmctld was killed before it
// had saved the job's end.
func (c *campaign) lost(j queued) bool {
	alive := slices.ContainsFunc(c.latest().Procs, func(p proc) bool { return p.Job == j.raw })
	return j.state == "RUNNING" && !alive && slices.ContainsFunc(j.on, func(node string) bool {
		return c.active("slurmd", node, j.started.Add(-time.Second), time.Now()) ||
			c.active("slurmctld", "", j.started.Add(-time.Second), time.Now())
	})
}

// resumeDuplicates resumes a node that slurmctld drained for a "Duplicate jobid", as an administrator has to: a
// slurmctld that was killed gives the ids of its last jobs again if it had not saved them.
func (c *campaign) resumeDuplicates(q queue) {
	for _, node := range c.nodes() {
		if l := q.nodes[node]; len(l.States) == 0 || up(l) || !c.active("slurmctld", "", time.Time{}, time.Now()) {
			continue
		}
		if strings.Contains(c.tell("", "scontrol", "-o", "show", "node", node), " Reason=Duplicate jobid") {
			c.time.add("%s is drained for a duplicate job id, and is resumed", node)
			b := &breaking{
				campaign: c,
				fault:    fault{name: "duplicate-jobid", part: "node", ends: sentBack},
				node:     node,
				from:     time.Now(),
				to:       time.Now(),
			}
			c.mu.Lock()
			c.broken = append(c.broken, b) // the launch in vain sends its job back
			c.mu.Unlock()
			if err := c.root("", "scontrol", "update", "nodename="+node, "state=resume"); err != nil {
				c.time.add("%v", err)
			}
		}
	}
}

// cancelRest cancels what is left.
func (c *campaign) cancelRest() error {
	for range 3 {
		q, err := c.readQueue()
		if err != nil {
			return err
		}
		if len(q.live()) == 0 {
			return nil
		}
		c.cancelEach(q.live(), "the campaign cancelled what was left")
		sleep(c.ctx, 2*time.Second)
	}
	return nil
}

func (c *campaign) cancelEach(jobs []queued, why string) {
	for _, j := range jobs {
		c.cause(j.name, "CANCELLED", why)
		c.time.add("job %s (%s) is %s (%s) and is cancelled: %s", j.id, j.name, j.state, j.reason, why)
		if err := c.root("", "scancel", j.id); err != nil {
			c.time.add("%v", err)
		}
	}
}
