package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// users are the users of the devcluster.
var users = []string{"user1", "user2"}

// heldFor is the time for which a requeued job is held. credSeconds is cred_expire in slurm.conf, the lifetime of a job
// credential. slurmd 22.05.8 may skip the prolog of a requeued job that starts in exactly the second in which the
// credential of its first run expires. Because heldFor exceeds credSeconds by several seconds, no job starts in that
// second.
const heldFor, credSeconds = 24 * time.Second, 15

// credExpires is the slurm.conf line that sets the lifetime of job credentials.
var credExpires = fmt.Sprintf("AuthInfo=cred_expire=%d", credSeconds)

// actAs submits jobs as a user and performs actions on them until ctx is done.
func (c *campaign) actAs(ctx context.Context, user string, rng *rand.Rand) {
	var earlier []string // ids of the user's earlier jobs
	names := map[string]string{}
	for n := 1; ; n++ {
		j := draw(rng, c.o.kinds, user, c.number(), earlier)
		gap, act, which, kind := rng.ExpFloat64()*1.2, rng.IntN(100), rng.IntN(6), rng.IntN(len(userKinds))
		delay, variant := time.Duration(rng.IntN(4000))*time.Millisecond, rng.IntN(4)
		if id := c.submit(ctx, j); id != "" {
			earlier = append(earlier, id)
			names[id] = j.name
		}
		if len(earlier) > 0 && act < 35 && contains(c.o.kinds, userKinds[kind].name) {
			id := earlier[max(0, len(earlier)-1-which)]
			c.background(func() {
				sleep(ctx, delay)
				c.act(ctx, user, id, names[id], userKinds[kind].name, variant)
			})
		}
		if !sleep(ctx, time.Duration(gap*float64(time.Second))) {
			return
		}
	}
}

// number returns a number that is unique among the submissions of the campaign.
func (c *campaign) number() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.submitted++
	return c.submitted
}

// submit submits a job and returns its id, or "" if the id is unknown. An interactive job's client keeps running in the
// background.
func (c *campaign) submit(ctx context.Context, j job) string {
	if ctx.Err() != nil {
		return ""
	}
	c.remember(j)
	c.time.add("%s submits %s (%s): %s", j.user, j.name, j.kind, strings.Join(j.args, " "))
	if j.interactive {
		c.background(func() {
			// The client runs until the last job of the round has ended, not only until
			// the end of the storm.
			began := time.Now()
			_, stderr, err := c.cluster.Exec(c.clients, j.user, j.args...)
			if err != nil {
				c.time.add(
					"the srun of job %s ended after %v: %v: %s",
					j.name,
					time.Since(began).Round(time.Second),
					err,
					lastLine(stderr),
				)
			}
		})
		return ""
	}
	began := time.Now()
	out, stderr, err := c.cluster.Exec(c.ctx, j.user, j.args...)
	if err != nil {
		c.time.add("%s of %s failed: %v: %s", j.args[0], j.name, err, lastLine(stderr))
		if !c.active("slurmctld", "", began.Add(-5*time.Second), time.Now()) {
			c.found.add(&c.time, ruleTools, "%s for job %s failed: %s", j.args[0], j.name, lastLine(stderr))
		}
		return ""
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	c.time.add("%s is job %s", j.name, id)
	return id
}

// act performs a user's action on a job. Errors are not findings, because the job may already have ended.
func (c *campaign) act(ctx context.Context, user, id, name, kind string, variant int) {
	if ctx.Err() != nil {
		return
	}
	do := func(args ...string) bool {
		_, stderr, err := c.cluster.Exec(c.ctx, user, args...)
		text := ""
		if err != nil {
			text = ": " + lastLine(stderr)
		}
		c.time.add("%s (%s)%s", strings.Join(args, " "), name, text)
		return err == nil
	}
	switch kind {
	case "hold":
		if do("scontrol", "hold", id) {
			c.releaseAfter(4*time.Second, user, id)
		}
	case "update":
		what := []string{"TimeLimit=10", "Name=" + name, "Comment=changed", "Nice=5"}[variant]
		do("scontrol", "update", "jobid="+id, what)
	case "cancel":
		c.cause(name, "CANCELLED", "its user cancelled the job")
		do("scancel", id)
	case "requeue":
		c.cause(name, "REQUEUED", "its user requeued the job")
		if do("scontrol", "requeuehold", id) {
			c.releaseAfter(heldFor, user, id)
		}
	}
}

// releaseAfter releases a held job after the given time. The calm does not end before all such jobs have been released.
func (c *campaign) releaseAfter(d time.Duration, user, id string) {
	c.releasing.Add(1)
	c.background(func() {
		defer c.releasing.Add(-1)
		sleep(c.ctx, d)
		c.insist(user, "scontrol", "release", id)
	})
}

// insist runs a command until it succeeds, at most five times. Commands fail while slurmctld is down.
func (c *campaign) insist(user string, args ...string) {
	for range 5 {
		_, stderr, err := c.cluster.Exec(c.ctx, user, args...)
		c.time.add("%s: %s", strings.Join(args, " "), lastLine(stderr))
		if err == nil || !sleep(c.ctx, 2*time.Second) {
			return
		}
	}
}

// sleep waits for the given time. It returns false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
