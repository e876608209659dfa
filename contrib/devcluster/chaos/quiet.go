package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/contrib/devcluster/oracle"
)

// quietLimit is how long the cluster may take to be clean when every job is over.
const quietLimit = 30 * time.Second

// left is something that must not be there when all is quiet, and the rule that it breaks.
type left struct{ rule, text string }

// quiet waits until nothing is left of any job; what is there after quietLimit is a finding.
func (c *campaign) quiet() {
	var all []left
	for began := time.Now(); ; {
		sleep(c.ctx, time.Second)
		c.adoptRest()
		all = c.leftovers(began)
		if len(all) == 0 || c.ctx.Err() != nil {
			c.time.add("all is quiet after %v", time.Since(began).Round(time.Second))
			return
		}
		if time.Since(began) > quietLimit {
			break
		}
	}
	for _, l := range all {
		c.found.add(&c.time, l.rule, "%s", l.text)
	}
}

// leftovers compares what there is with what there must be. began is when the wait began: a snapshot must be younger.
func (c *campaign) leftovers(began time.Time) (all []left) {
	q, err := c.readQueue()
	if err != nil {
		return []left{{ruleTools, err.Error()}}
	}
	for _, j := range q.live() {
		all = append(all, left{ruleLeft, fmt.Sprintf("job %s (%s) is %s", j.id, j.name, j.state)})
	}
	s := c.latest()
	if s.At < began.UnixNano() {
		return append(all, left{ruleTools, "there is no snapshot"})
	}
	for _, p := range s.Procs {
		all = append(all, left{ruleLeft, fmt.Sprintf("process %d (%s) of job %s on %s", p.PID, p.Name, p.Job, p.Node)})
	}
	for _, node := range c.nodes() {
		killed := c.had(killedInCall, node, time.Time{}, time.Now())
		all = append(all, s.Nodes[node].leftovers(node, killed)...)
		status, err := c.status(node)
		if err != nil {
			all = append(all, left{ruleLeft, err.Error()})
			continue
		}
		all = append(all, c.counted(node, q.nodes[node], status)...)
		all = append(all, s.Nodes[node].unknown(node, status.instances())...)
		if out, stderr, err := c.cluster.ExecNode(c.ctx, node, "root", "nvml-emulator", "check"); err != nil {
			all = append(all, complaints(node, out+stderr, killed)...)
		}
	}
	return all
}

// complaints are the lines of `nvml-emulator check`. A process that is killed while it makes an instance leaves the
// instance's capability files, until the next instance there: the emulator makes them before the instance.
func complaints(node, text string, killed bool) (all []left) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" &&
			!(killed && strings.HasSuffix(line, "no instance stands behind this file")) {
			all = append(all, left{ruleLeft, node + ": nvml-emulator check: " + line})
		}
	}
	return all
}

// leftovers are the files and handles of a node that belong to a job. killed: see complaints.
func (n nodeState) leftovers(node string, killed bool) (all []left) {
	say := func(format string, args ...any) {
		all = append(all, left{ruleLeft, node + ": " + fmt.Sprintf(format, args...)})
	}
	for _, l := range n.Leases {
		say("the lease file of job %s", l.Job)
	}
	for _, name := range n.Other {
		say("the file %s among the lease files", name)
	}
	for _, f := range n.Caps {
		_, stands := n.instance(func(gpu int, in instance) bool { return gpu == f.GPU && in.GI == f.GI })
		if f.UID != 0 || f.Mode&0o077 != 0 && (stands || !killed) {
			say("%s of instance %d on GPU %d has owner %d and mode %o", f.Name, f.GI, f.GPU, f.UID, f.Mode)
		}
	}
	for _, c := range n.Clients {
		say("process %d on instance %d of GPU %d", c.PID, c.GI, c.GPU)
	}
	return all
}

// place is where an instance is.
type place struct {
	gpu, gi int
	profile string
}

// unknown compares the instances on the GPUs with those that the agent has as idle.
func (n nodeState) unknown(node string, known map[place]string) (all []left) {
	for g := range n.GPUs {
		for _, in := range n.GPUs[g].Instances {
			at := place{g, in.GI, in.Profile}
			if known[at] != "idle" {
				all = append(
					all,
					left{
						ruleLeft,
						fmt.Sprintf(
							"%s: %s at %d on GPU %d is %q to the agent, not idle",
							node,
							in.Profile,
							in.Start,
							g,
							known[at],
						),
					},
				)
			}
			delete(known, at)
		}
	}
	for at, state := range known {
		all = append(
			all,
			left{
				ruleLeft,
				fmt.Sprintf(
					"%s: the agent has a %s %s with id %d on GPU %d, which is not there",
					node,
					state,
					at.profile,
					at.gi,
					at.gpu,
				),
			},
		)
	}
	return all
}

// status is what the agent of a node says of itself.
func (c *campaign) status(node string) (status agentStatus, err error) {
	out, stderr, err := c.cluster.ExecNode(c.ctx, node, "root", "caelum", "status", "--json")
	if err != nil {
		return status, fmt.Errorf("%s: caelum status: %w: %s", node, err, lastLine(stderr))
	}
	return status, json.Unmarshal([]byte(out), &status)
}

// instances returns the states of the instances that the agent knows.
func (s agentStatus) instances() map[place]string {
	known := map[place]string{}
	for _, g := range s.GPUs {
		for _, in := range g.Instances {
			known[place{g.Index, in.GI, in.Profile}] = in.State
		}
	}
	return known
}

// counted: a node is up, and its counts of gres/mig are right.
func (c *campaign) counted(node string, l oracle.Snapshot, status agentStatus) (all []left) {
	if !up(l) {
		_, why, _ := strings.Cut(c.tell("", "scontrol", "-o", "show", "node", node), " Reason=")
		all = append(all, left{ruleNodes, fmt.Sprintf("%s is %s: %s", node, strings.Join(l.States, "+"), why)})
	}
	recounted := c.active("slurmctld", "", time.Time{}, time.Now())
	for _, wrong := range miscounts(l, c.total[node], status, recounted) {
		all = append(all, left{ruleCounts, node + ": " + wrong})
	}
	return all
}

// miscounts judges the counts of a node on which no job is: their sum is slurm.conf's, what is free of each profile is
// what the agent offers, and nothing is used. The exceptions are slurmctld's own (22.05.8), from when it starts or
// reads its configuration: it counts the slices of a job on several nodes once for each of them, and to an --exclusive
// job the whole total of closed; at the job's end it subtracts what it had allocated, and keeps the rest. Of profiles
// the agent must say so, and there must be room for all that it offers.
func miscounts(l oracle.Snapshot, configured int, status agentStatus, recounted bool) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	total, allUsed, allFree := 0, 0, 0
	for profile, n := range l.Total {
		used := l.Used[profile]
		total, allUsed = total+n, allUsed+used
		if profile == closed {
			if used > 0 && !recounted {
				say("%d closed are used by no job", used)
			}
			continue
		}
		if said := status.Excess[profile]; used > 0 && !recounted || used != said {
			say("%d %s are used by no job, and the agent says %d", used, profile, said)
		}
		allFree += n - used
		if n-used != status.offered(profile)-status.Short[profile] {
			say("%d of %d %s are used, and the agent offers %d", used, n, profile, status.offered(profile))
		}
	}
	if allFree > total-allUsed {
		say("%d slices are free, and only %d of all gres/mig are", allFree, total-allUsed)
	}
	if total != configured {
		say("%d gres/mig, and slurm.conf says %d: %v", total, configured, l.Total)
	}
	slices.Sort(all)
	return all
}

// closed is the filler's type of gres/mig.
const closed = "closed"

// offered returns how many slices of a profile the agent has on offer.
func (s agentStatus) offered(profile string) (n int) {
	for _, g := range s.GPUs {
		for _, o := range g.Offers {
			if o.Profile == profile {
				n++
			}
		}
	}
	return n
}

func (c *campaign) tell(node string, args ...string) string {
	out, stderr, _ := c.cluster.ExecNode(c.ctx, node, "root", args...)
	return strings.TrimSpace(out + stderr)
}

// configuredTotals reads N of each node from slurm.conf: the sum of its gres/mig.
func configuredTotals(conf string) (map[string]int, error) {
	totals := map[string]int{}
	for line := range strings.Lines(conf) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "NodeName=n") {
			continue
		}
		name := strings.TrimPrefix(f[0], "NodeName=")
		k := slices.IndexFunc(f, func(w string) bool { return strings.HasPrefix(w, "Gres=") })
		if k < 0 {
			continue
		}
		for _, g := range strings.Split(strings.TrimPrefix(f[k], "Gres="), ",") {
			if parts := strings.Split(g, ":"); len(parts) == 3 && parts[0] == "mig" {
				n, err := strconv.Atoi(parts[2])
				if err != nil {
					return nil, fmt.Errorf("slurm.conf: %q: %w", g, err)
				}
				totals[name] += n
			}
		}
	}
	return totals, nil
}
