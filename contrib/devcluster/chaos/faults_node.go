package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// diskFaults lists the faults that fill the agent's disks or destroy its files.
var diskFaults = []fault{
	{
		name:     "ledger-full",
		does:     "keeps the disk with an agent's ledger full for 1 to 10 s",
		part:     "ledger",
		shortest: 1,
		longest:  10,
		begin:    func(b *breaking) error { return b.fill("/var/lib/caelum") },
		end:      func(b *breaking) error { return b.empty("/var/lib/caelum") },
	},
	{
		name:     ledgerErrors,
		does:     "makes all or a third of the writes to an agent's ledger fail for 2 to 12 s",
		part:     "ledger node",
		shortest: 2,
		longest:  12,
		ends:     []string{"REQUEUED", "FAILED", "CANCELLED"},
		begin:    breakWrites,
		end:      mendWrites,
	},
	{
		name:     "leases-full",
		does:     "keeps the disk with the lease files full for 1 to 10 s",
		part:     "leases",
		shortest: 1,
		longest:  10,
		begin:    func(b *breaking) error { return b.fill("/run/caelum/jobs") },
		end:      func(b *breaking) error { return b.empty("/run/caelum/jobs") },
	},
	{
		name:  "ledger-lost",
		does:  "removes an agent's ledger while the agent is stopped, and adopts the foreign instances as root",
		part:  "ledger agent slurmd",
		ends:  sentBack,
		begin: loseLedger,
		end:   adopt,
	},
	{
		name: "ledger-damaged",
		does: "overwrites an agent's ledger while the agent is stopped, moves it away after a failed start, " +
			"and adopts the foreign instances as root",
		part:  "ledger agent slurmd",
		ends:  sentBack,
		begin: damageLedger,
		end:   adopt,
	},
}

const filler = "cat /dev/zero >>%[1]s/filler; for i in $(seq 64); do echo >>%[1]s/filler.$i; done; true"

func (b *breaking) fill(dir string) error {
	return b.root(b.node, "bash", "-c", fmt.Sprintf("("+filler+") 2>/dev/null", dir))
}

func (b *breaking) empty(dir string) error {
	return b.root(b.node, "bash", "-c", "rm -f "+dir+"/filler*")
}

const ledgerErrors = "ledger-errors"

// breakWrites makes writes to the ledger fail (baddisk.c). With EIO, also reads fail, the agent grants no more leases,
// and the next prolog fails and drains the node. With ENOSPC, prologs wait.
func breakWrites(b *breaking) error {
	b.note = pick(b.rng, "5", "5", "28") + " " + pick(b.rng, "100", "30")
	return b.root(b.node, "bash", "-c", "echo "+b.note+" >/run/bad-disk")
}

func mendWrites(b *breaking) error {
	if err := b.root(b.node, "rm", "-f", "/run/bad-disk"); err != nil {
		return err
	}
	q, err := b.readQueue()
	if err == nil {
		b.resumeDefective(q, b.node)
	}
	return err
}

// resumeDefective does what an administrator does when a node's ledger can be written again: it resumes the node and
// releases the jobs that slurmctld held because a prolog failed. The node's reason must name the ledger.
func (c *campaign) resumeDefective(q queue, node string) {
	for _, j := range q.jobs {
		if j.state == "PENDING" && j.reason == "launch_failed_requeued_held" {
			c.time.add("released job %s (%s): %s", j.id, j.name, c.tell("", "scontrol", "release", j.id))
		}
	}
	reason, named := failedProlog(c.tell("", "scontrol", "-o", "show", "node", node))
	if reason == "" {
		return
	}
	// If slurmctld does not answer the plugin in time, the reason is Slurm's.
	if !named && !c.active("slurmctld", "", time.Time{}, time.Now()) {
		c.found.add(&c.time, ruleNodes, "%s drained because of its ledger, but its reason is %s", node, reason)
	}
	c.time.add("resumed %s: %s: %s", node, reason,
		c.tell("", "scontrol", "update", "nodename="+node, "state=resume"))
}

// failedProlog returns a node's reason if a failed prolog has drained the node, and whether it names the ledger.
func failedProlog(record string) (reason string, named bool) {
	_, reason, _ = strings.Cut(record, " Reason=")
	reason, _, _ = strings.Cut(reason, "\n")
	if !strings.HasPrefix(reason, "Prolog error") && !strings.HasPrefix(reason, "caelum: ") {
		return "", false
	}
	return reason, strings.Contains(reason, "ledger /var/lib/caelum/ledger.db: ")
}

func loseLedger(b *breaking) error {
	if err := b.cluster.StopUnit("agent-" + b.node); err != nil {
		return err
	}
	if err := b.root(b.node, "bash", "-c", "rm -f /var/lib/caelum/ledger.db*"); err != nil {
		return err
	}
	return b.startUnit("agent-" + b.node)
}

func damageLedger(b *breaking) error {
	unit := "agent-" + b.node
	if err := b.cluster.StopUnit(unit); err != nil {
		return err
	}
	if err := b.root(b.node, "bash", "-c", "head -c 20000 /dev/urandom >/var/lib/caelum/ledger.db"); err != nil {
		return err
	}
	if b.cluster.StartUnit(unit) == nil {
		b.found.add(&b.time, ruleTools, "an agent started with a damaged ledger")
	}
	if err := b.cluster.StopUnit(unit); err != nil {
		return err
	}
	if err := b.root(b.node, "bash", "-c", "rm -rf /var/lib/caelum/old; mkdir /var/lib/caelum/old && mv "+
		"/var/lib/caelum/ledger.db* /var/lib/caelum/old"); err != nil {
		return err
	}
	return b.startUnit(unit)
}

// adopt runs `caelum adopt` as root for the node's foreign instances. If the agent refuses, because a job without a
// lease is on the node or a monitoring program has a handle on the instance, adoptRest retries later.
func adopt(b *breaking) error {
	b.mu.Lock()
	b.unadopted[b.node] = true
	b.mu.Unlock()
	b.adoptRest()
	return nil
}

// adoptRest repeats the adoption on nodes that may still have foreign instances.
func (c *campaign) adoptRest() {
	c.mu.Lock()
	nodes := slices.Sorted(maps.Keys(c.unadopted))
	c.mu.Unlock()
	for _, node := range nodes {
		out, stderr, err := c.cluster.ExecNode(c.ctx, node, "root", "caelum", "adopt", "--all")
		if err != nil {
			c.time.add("%s: caelum adopt --all: %v: %s%s", node, err, out, stderr) // out has the reasons
			continue
		}
		c.mu.Lock()
		delete(c.unadopted, node)
		c.mu.Unlock()
	}
}

// makeForeign creates an instance in the same way as an administrator with nvidia-smi.
func makeForeign(b *breaking) error {
	gpu := fmt.Sprint(b.rng.IntN(b.o.gpus))
	out, stderr, err := b.cluster.ExecNode(
		b.ctx,
		b.node,
		"root",
		"nvml-emulator",
		"create",
		gpu,
		pick(b.rng, profiles[0], profiles[min(2, len(profiles)-1)], profiles[min(3, len(profiles)-1)]),
	)
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLine(stderr))
	}
	gi, _, _ := strings.Cut(strings.TrimPrefix(out, "gi="), " ")
	b.note = gpu + " " + gi
	return nil
}

// removeForeign removes the instance that makeForeign created. The agent notices this when it next reads the GPUs,
// which it does once a minute.
func removeForeign(b *breaking) error {
	if b.note == "" {
		return nil
	}
	if err := b.onTheSame("destroy"); err != nil {
		return err
	}
	return b.cluster.RestartUnit("agent-" + b.node)
}

// agentStatus holds the fields of `caelum status --json` that the campaign uses.
type agentStatus struct {
	GPUs   []agentGPU
	Excess map[string]int // by profile: the slices that slurmctld counts as used even though no job holds them
	Short  map[string]int `json:"excess_short"` // the part of Excess that does not fit into the totals
}

type agentGPU struct {
	Index     int
	Instances []struct {
		GI             int
		Profile, State string
		Start          int
	}
	Offers []struct{ Profile string }
}

const killedInCall = "killed-in-call"

// hardwareFaults lists the faults in the emulated driver and GPUs. If the agent cannot create a job's slice, it
// requeues the job.
var hardwareFaults = []fault{
	{
		name:     "create-fails",
		does:     "makes the next one to three attempts to create an instance fail",
		part:     "gpu",
		shortest: 3,
		longest:  10,
		ends:     sentBack,
		end:      clearFaults,
		begin: func(b *breaking) error {
			return b.addFault(
				"CREATE_GI",
				"--times",
				fmt.Sprint(1+b.rng.IntN(3)),
				"--error",
				pick(b.rng, "UNKNOWN", "INSUFFICIENT_RESOURCES", "IN_USE"),
			)
		},
	},
	{
		name:     "create-fails-late",
		does:     "makes the next call that creates an instance return an error even though it succeeds",
		part:     "gpu",
		shortest: 3,
		longest:  10,
		ends:     sentBack,
		end:      clearFaults,
		begin:    func(b *breaking) error { return b.addFault("CREATE_GI", "--error", "UNKNOWN", "--after") },
	},
	{
		name:     "compute-fails",
		does:     "makes the next one or two attempts to create a compute instance fail",
		part:     "gpu",
		shortest: 3,
		longest:  10,
		ends:     sentBack,
		end:      clearFaults,
		begin: func(b *breaking) error {
			return b.addFault("CREATE_CI", "--times", fmt.Sprint(1+b.rng.IntN(2)), "--error", "INSUFFICIENT_RESOURCES")
		},
	},
	{
		name:     "destroy-fails",
		does:     "makes the next one to five removals of an instance fail",
		part:     "gpu",
		shortest: 3,
		longest:  10,
		ends:     sentBack,
		end:      clearFaults,
		begin: func(b *breaking) error {
			return b.addFault("DESTROY_GI", "--times", fmt.Sprint(1+b.rng.IntN(5)), "--error", "IN_USE")
		},
	},
	{
		name:     killedInCall,
		does:     "kills the agent the next time it creates or removes an instance",
		part:     "gpu",
		shortest: 3,
		longest:  10,
		end:      clearFaults,
		begin: func(b *breaking) error {
			return b.addFault(
				pick(b.rng, "CREATE_GI", "CREATE_CI", "DESTROY_GI", "DESTROY_CI"),
				"--kill",
				pick(b.rng, "before", "torn", "after"),
			)
		},
	},
	{
		name:     "slow-driver",
		does:     "slows the driver for 4 to 12 s: calls take as long as on real GPUs, or creations take 3 s",
		part:     "gpu",
		shortest: 4,
		longest:  12,
		begin: func(b *breaking) error {
			if b.rng.IntN(2) == 0 {
				return b.emulator("latency", "realistic")
			}
			return b.emulator("latency", "--call", "CREATE_GI", "3000")
		},
		end: func(b *breaking) error { return b.emulator("latency", "off") },
	},
	{
		name:     "gpu-lost",
		does:     "makes a GPU fall off the bus for 2 to 10 s and restarts the GPU's agent",
		part:     "gpu agent",
		shortest: 2,
		longest:  10,
		ends:     []string{"FAILED", "REQUEUED", "NODE_FAIL", "CANCELLED"},
		begin: func(b *breaking) error {
			b.note = fmt.Sprint(b.rng.IntN(b.o.gpus))
			return b.emulator("lose", b.note)
		},
		end: func(b *breaking) error {
			if err := b.emulator("find", b.note); err != nil {
				return err
			}
			return b.cluster.RestartUnit("agent-" + b.node)
		},
	},
	{
		name:     "handle-held",
		does:     "keeps a handle on an instance open for 3 to 12 s, as a monitoring program does",
		part:     "gpu",
		shortest: 3,
		longest:  12,
		ends:     sentBack,
		begin:    func(b *breaking) error { return b.onInstance("hold", nil) },
		end:      func(b *breaking) error { return b.onTheSame("unhold") },
	},
	{
		name:     "foreign",
		does:     "creates a foreign instance and removes it after 4 to 12 s",
		part:     "gpu agent",
		shortest: 4,
		longest:  12,
		ends:     sentBack,
		begin:    makeForeign,
		end:      removeForeign,
	},
	// On a slow machine, the agent can lease the instance after its state has been read but before it is removed. The
	// job then loses its slice and ends as it would without a GPU.
	{name: "idle-removed", does: "removes an idle instance, as an administrator can", part: "gpu",
		ends: []string{"FAILED"},
		begin: func(b *breaking) error {
			return b.onInstance("destroy", func(in instance, used bool) bool { return !used })
		}},
}

// sentBack lists the possible states of a run whose slice the agent could not create. This can also happen after the
// loss of a ledger: idle instances are then foreign until root adopts them, and the agent cannot destroy a foreign
// instance, even though an earlier offer may need its space.
var sentBack = []string{"REQUEUED"}

func pick(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }

func clearFaults(b *breaking) error { return b.emulator("fault", "clear") }

func (b *breaking) addFault(call string, args ...string) error {
	b.note = call + " " + strings.Join(args, " ")
	return b.emulator(append([]string{"fault", "add", "--call", call}, args...)...)
}

func (b *breaking) emulator(args ...string) error {
	return b.root(b.node, append([]string{"nvml-emulator"}, args...)...)
}

// onTheSame runs a command on the instance that the fault has chosen, or does nothing if the agent has destroyed this
// instance.
func (b *breaking) onTheSame(command string) error {
	err := b.onInstance(command, nil)
	if err != nil && strings.Contains(err.Error(), "has no instance") {
		return nil
	}
	return err
}

// onInstance runs an emulator command on one of the node's instances. Later calls on b use the same instance as the
// first.
func (b *breaking) onInstance(command string, want func(in instance, used bool) bool) error {
	if b.note == "" {
		s := b.latest()
		n := s.Nodes[b.node]
		var some []string
		for g := range n.GPUs {
			for _, in := range n.GPUs[g].Instances {
				if want == nil || want(in, n.used(g, in)) {
					some = append(some, fmt.Sprintf("%d %d", g, in.GI))
				}
			}
		}
		if len(some) == 0 {
			return errNothing
		}
		b.note = some[b.rng.IntN(len(some))]
	}
	words := strings.Fields(b.note)
	if words[1] == fmt.Sprint(fullGI) {
		if command != "destroy" {
			return errNothing
		}
		return b.emulator("mig-mode", words[0], "on") // as `nvidia-smi -mig 1` does
	}
	return b.emulator(append([]string{command}, words...)...)
}
