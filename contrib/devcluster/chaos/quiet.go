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

// quietLimit is the maximum time for which traces of jobs are allowed to remain after the last job has ended.
const quietLimit = 30 * time.Second

// left describes a trace that must not remain in a quiet cluster, together with the rule that it violates.
type left struct{ rule, text string }

// quiet waits until no traces of the jobs remain. Each trace that remains after quietLimit becomes a finding.
func (c *campaign) quiet() {
	var all []left
	for began := time.Now(); ; {
		sleep(c.ctx, time.Second)
		c.adoptRest()
		all = c.leftovers(began)
		if len(all) == 0 || c.ctx.Err() != nil {
			c.time.add("the cluster became quiet after %v", time.Since(began).Round(time.Second))
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

// leftovers returns the differences between the cluster and a clean one. Snapshots older than began, the time at which
// the wait for a quiet cluster started, are ignored.
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
		return append(all, left{ruleTools, "no snapshot was read"})
	}
	for _, p := range s.Procs {
		all = append(all, left{ruleLeft, fmt.Sprintf("process %d (%s) of job %s is still running on %s",
			p.PID, p.Name, p.Job, p.Node)})
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

// complaints returns the lines that `nvml-emulator check` prints as findings. The emulator creates an instance's
// capability files before the instance itself. If a process is killed in between, the files remain until the next
// instance is created at the same placement. Therefore, if killed is true, capability files without an instance are
// ignored.
func complaints(node, text string, killed bool) (all []left) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" &&
			!(killed && strings.HasSuffix(line, "this file belongs to no instance")) {
			all = append(all, left{ruleLeft, node + ": nvml-emulator check: " + line})
		}
	}
	return all
}

// leftovers returns the files and handles on a node that belong to a job. It passes killed to complaints.
func (n nodeState) leftovers(node string, killed bool) (all []left) {
	say := func(format string, args ...any) {
		all = append(all, left{ruleLeft, node + ": " + fmt.Sprintf(format, args...)})
	}
	for _, l := range n.Leases {
		say("the lease file of job %s still exists", l.Job)
	}
	for _, name := range n.Other {
		say("the lease directory contains the file %s", name)
	}
	for _, f := range n.Caps {
		_, exists := n.instance(func(gpu int, in instance) bool { return gpu == f.GPU && in.GI == f.GI })
		if f.UID != 0 || f.Mode&0o077 != 0 && (exists || !killed) {
			say("%s of instance %d on GPU %d has owner %d and mode %o", f.Name, f.GI, f.GPU, f.UID, f.Mode)
		}
	}
	for _, inode := range n.Groups {
		say("the cgroup %d of a job still exists", inode)
	}
	for _, c := range n.Clients {
		say("process %d still uses instance %d of GPU %d", c.PID, c.GI, c.GPU)
	}
	return all
}

// place identifies an instance by its GPU, GPU instance id and profile.
type place struct {
	gpu, gi int
	profile string
}

// unknown returns the differences between the instances on the GPUs and the idle instances shown in the agent's status.
func (n nodeState) unknown(node string, known map[place]string) (all []left) {
	for g := range n.GPUs {
		for _, in := range n.GPUs[g].Instances {
			at := place{g, in.GI, in.Profile}
			if known[at] != "idle" && !n.GPUs[g].Divided {
				all = append(
					all,
					left{
						ruleLeft,
						fmt.Sprintf(
							"%s: the agent shows %s at %d on GPU %d as %q, not as idle",
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
		if at.gpu < len(n.GPUs) && n.GPUs[at.gpu].Divided && state == "idle" {
			continue // the driver does not know fractions
		}
		all = append(
			all,
			left{
				ruleLeft,
				fmt.Sprintf(
					"%s: the agent shows a %s %s with id %d on GPU %d, but no such instance exists",
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

// status returns the status reported by a node's agent.
func (c *campaign) status(node string) (status agentStatus, err error) {
	out, stderr, err := c.cluster.ExecNode(c.ctx, node, "root", "caelum", "status", "--json")
	if err != nil {
		return status, fmt.Errorf("%s: caelum status: %w: %s", node, err, lastLine(stderr))
	}
	return status, json.Unmarshal([]byte(out), &status)
}

// instances returns the states of the instances according to the agent's status.
func (s agentStatus) instances() map[place]string {
	known := map[place]string{}
	for _, g := range s.GPUs {
		for _, in := range g.Instances {
			known[place{g.Index, in.GI, in.Profile}] = in.State
		}
	}
	return known
}

// counted checks a node's record in slurmctld and returns a finding if the node is not up or its gres/mig counts are
// wrong.
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

// miscounts checks slurmctld's counts for a node without jobs. The sum of the counts must equal the sum in slurm.conf,
// the free count of each profile must equal the agent's offer, and slices must not be counted as used. There is one
// exception, because of a bug in slurmctld 22.05.8: after a start or a reconfiguration, it counts the slices of a
// multi-node job once for each node, and for an --exclusive job, it counts all gres/mig:closed of the node. When the
// job ends, it subtracts only the allocated slices, so an excess remains. The agent must report the excess of each
// profile, and all offered slices must be free in slurmctld.
func miscounts(l oracle.Snapshot, configured int, status agentStatus, recounted bool) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	total, allUsed, allFree := 0, 0, 0
	for profile, n := range l.Total {
		used := l.Used[profile]
		total, allUsed = total+n, allUsed+used
		if profile == closed {
			if used > 0 && !recounted {
				say("slurmctld counts %d GRES of type closed as used, but no job holds them", used)
			}
			continue
		}
		if said := status.Excess[profile]; used > 0 && !recounted || used != said {
			say("slurmctld counts %d %s that no job holds as used, but the agent reports an excess of %d",
				used, profile, said)
		}
		free := n - used
		if n == 0 {
			free = 0 // a hidden profile (package publish)
		}
		allFree += free
		if free != status.offered(profile)-status.Short[profile] {
			say("slurmctld counts %d of %d %s as used, but the agent offers %d",
				used, n, profile, status.offered(profile))
		}
	}
	if allFree > total-allUsed {
		say("%d slices are free, but the total of gres/mig leaves room for only %d", allFree, total-allUsed)
	}
	if total != configured {
		say("the total of gres/mig is %d, but slurm.conf sets %d: %v", total, configured, l.Total)
	}
	slices.Sort(all)
	return all
}

// closed is the gres/mig type that represents the part of the node's total that is not offered.
const closed = "closed"

// offered returns the number of slices of a profile that the agent offers.
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

// configuredTotals returns each node's gres/mig total according to slurm.conf.
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
