package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// campaign is one cluster under load and faults.
type campaign struct {
	o       options
	cluster *cluster.Cluster
	ctx     context.Context
	time    timeline
	found   findings
	counts  counts

	mu        sync.Mutex
	submitted int
	jobs      map[string]job     // by name
	causes    map[string][]cause // by name
	broken    []*breaking        // all faults, in the order in which they started
	last      snapshot
	total     map[string]int  // each node's gres/mig total
	unadopted map[string]bool // nodes that have lost their ledger and still have instances to adopt

	work      sync.WaitGroup
	badDisk   string          // the library that makes writes to the ledgers fail
	clients   context.Context // the context of the round's srun processes
	releasing atomic.Int32    // the number of held jobs that will be released later
}

// cause is an action that the campaign took on a job and that explains how a run of the job ended.
type cause struct {
	at       time.Time
	end, why string
}

// counts holds the number of events of each kind in a campaign.
type counts struct {
	rounds, runs, processes, snapshots int
	faults                             map[string]int
	ends                               map[string]int
}

// errNothing means that there was no target for a fault.
var errNothing = errors.New("the fault found no target")

// newCampaign starts a cluster and returns a campaign that runs on it.
func newCampaign(ctx context.Context, o options) (*campaign, error) {
	script, err := cluster.Script()
	if err != nil {
		return nil, err
	}
	here := filepath.Dir(script)
	c := &campaign{
		o:         o,
		ctx:       ctx,
		jobs:      map[string]job{},
		causes:    map[string][]cause{},
		total:     map[string]int{},
		unadopted: map[string]bool{},
	}
	c.time.print, c.found.ignore = o.verbose, o.ignore
	c.counts.faults, c.counts.ends = map[string]int{}, map[string]int{}
	config := filepath.Join(here, "chaos", "caelum.yaml")
	conf := []string{credExpires, "Licenses=chaos:2", "SlurmdTimeout=30",
		"SlurmctldHost=ctl2(127.0.0.2)", "CommunicationParameters=NoCtldInAddrAny", // ctl2 has only a watcher
		"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min,bf_interval=1"}
	if o.features {
		config = filepath.Join(here, "chaos", "features.yaml")
		conf = append(conf, "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", fmt.Sprintf(
			"PartitionName=high PriorityTier=10 Nodes=n[1-%d],mig-catalog[1-%[1]d] MaxTime=INFINITE State=UP", o.nodes))
	}
	limits := ""
	if o.fractions {
		config, limits = filepath.Join(here, "chaos", "fractions.yaml"), "misc"
	}
	if c.badDisk, err = buildBadDisk(here); err != nil {
		return nil, err
	}
	c.cluster, err = cluster.Start(
		ctx,
		cluster.Options{Nodes: o.nodes, GPUs: o.gpus, Model: o.model, Build: o.build, Cgroup: o.cgroup,
			MemoryLimits: limits, AgentConfig: config, Conf: conf, AgentEnv: []string{"LD_PRELOAD=" + c.badDisk}},
	)
	if err != nil {
		return nil, errors.Join(err, os.Remove(c.badDisk))
	}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// stop ends the cluster.
func (c *campaign) stop() error { return errors.Join(c.cluster.Stop(), os.Remove(c.badDisk)) }

// buildBadDisk compiles lib/baddisk.c and returns the library's path.
func buildBadDisk(devcluster string) (string, error) {
	f, err := os.CreateTemp("", "baddisk-*.so")
	if err != nil {
		return "", err
	}
	f.Close()
	source := filepath.Join(devcluster, "lib", "baddisk.c")
	cc := exec.Command("cc", "-Wall", "-O1", "-shared", "-fPIC", "-o", f.Name(), source)
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("couldn't compile baddisk.c: %w: %s", err, out)
	}
	return f.Name(), os.Chmod(f.Name(), 0o755)
}

// prepare creates the users' files and small file systems for the lease files, and reads the gres/mig total of each
// node.
func (c *campaign) prepare() error {
	for _, user := range users {
		if err := os.WriteFile(filepath.Join(c.cluster.Dir, "home", user, "worker"), []byte(worker),
			0o755); err != nil {
			return err
		}
	}
	for _, node := range c.nodes() {
		if err := c.root(node, "mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs",
			"/run/caelum/jobs"); err != nil {
			return err
		}
		if err := c.root(node, "mount", "-o", "remount,size=8m", "/var/lib/caelum"); err != nil {
			return err
		}
	}
	if err := c.startUnit("watcher2"); err != nil {
		return err
	}
	conf, stderr, err := c.cluster.Exec(c.ctx, "root", "cat", "/etc/slurm/slurm.conf")
	if err != nil {
		return fmt.Errorf("couldn't read slurm.conf: %w: %s", err, stderr)
	}
	c.total, err = configuredTotals(conf)
	return err
}

func (c *campaign) nodes() (all []string) {
	for n := range c.o.nodes {
		all = append(all, fmt.Sprint("n", n+1))
	}
	return all
}

// root runs a command as root on a node, or on the login node if node is empty.
func (c *campaign) root(node string, args ...string) error {
	out, stderr, err := c.cluster.ExecNode(c.ctx, node, "root", args...)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(out+stderr))
	}
	return nil
}

func (c *campaign) background(do func()) {
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		do()
	}()
}

func (c *campaign) remember(j job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs[j.name] = j
}

// cause records an action that the campaign is about to take on a job, and the end of a run that this action explains.
// It must be called before the action.
func (c *campaign) cause(name, end, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.causes[name] = append(c.causes[name], cause{time.Now(), end, why})
}

// active reports whether the given part had a fault at any time between from and to. It considers only faults that
// affect the given node or all nodes.
func (c *campaign) active(part, node string, from, to time.Time) bool {
	return slices.ContainsFunc(c.faultsIn(from, to), func(b *breaking) bool {
		return slices.Contains(strings.Fields(b.part), part) && (node == "" || b.node == "" || b.node == node)
	})
}

// had reports whether the named fault was present at any time between from and to. It considers a fault on a single
// node only if it affected the given node.
func (c *campaign) had(name, node string, from, to time.Time) bool {
	return slices.ContainsFunc(
		c.faultsIn(from, to),
		func(b *breaking) bool { return b.name == name && (b.node == "" || b.node == node) },
	)
}

// faultsIn returns copies of the faults that were present at any time between from and to.
func (c *campaign) faultsIn(from, to time.Time) (some []*breaking) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.broken {
		if b.from.Before(to) && (b.to.IsZero() || b.to.After(from)) {
			one := *b
			some = append(some, &one)
		}
	}
	return some
}

func (c *campaign) latest() snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// watch reads and checks snapshots until ctx is done.
func (c *campaign) watch(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := c.cluster.Command(ctx, "", "root", self, "observe")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	w := newSliceWatch(c.found.adder(&c.time, ruleTwice))
	for d := json.NewDecoder(out); ; {
		var s snapshot
		if err := d.Decode(&s); err != nil {
			break
		}
		w.check(s)
		c.mu.Lock()
		c.last = s
		c.counts.snapshots++
		c.mu.Unlock()
	}
	if err := cmd.Wait(); ctx.Err() == nil {
		return fmt.Errorf("the observe command ended: %w", err)
	}
	return nil
}

// srunLimit is the maximum time between the end of the last job and the end of the last srun.
const srunLimit = 5 * time.Second

// round runs a storm and the calm after it, and then checks the quiet cluster. When it returns, all jobs of the round
// have ended.
func (c *campaign) round(seed uint64) error {
	began := time.Now()
	c.time.add("round %d begins", c.counts.rounds+1)
	clients, endClients := context.WithCancel(c.ctx)
	defer endClients()
	c.clients = clients
	storm, cancel := context.WithTimeout(c.ctx, c.o.storm)
	defer cancel()
	for k, user := range users {
		c.background(func() { c.actAs(storm, user, rand.New(rand.NewPCG(seed, uint64(k)+1))) })
	}
	c.breakThings(storm, rand.New(rand.NewPCG(seed, 100)))
	c.time.add("the storm ended")
	if err := c.mend(); err != nil {
		return err
	}
	calm := time.Now()
	c.time.add("every fault was repaired")
	if err := c.calm(calm); err != nil {
		return err
	}
	// If slurmctld was unreachable when a job ended, the job's srun may never end.
	time.AfterFunc(srunLimit, endClients)
	c.work.Wait()
	c.quiet()
	c.judgeEnds(began)
	c.judgeProcesses()
	c.counts.rounds++
	return c.ctx.Err()
}

// breakThings starts faults until ctx is done. The caller must then call mend to end the remaining faults.
func (c *campaign) breakThings(ctx context.Context, rng *rand.Rand) {
	var each sync.WaitGroup
	defer each.Wait()
	some := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !contains(c.o.kinds, f.name) })
	busy := map[string]bool{}
	var mu sync.Mutex
	for len(some) > 0 {
		k, gap, seed := rng.IntN(len(some)), rng.ExpFloat64()*2, rng.Uint64()
		b := &breaking{campaign: c, fault: some[k], rng: rand.New(rand.NewPCG(seed, 1))}
		if b.perNode() {
			if b.node = c.nodes()[b.rng.IntN(c.o.nodes)]; b.fractions {
				b.node = c.nodes()[c.o.nodes-1]
			}
		}
		lasts := time.Duration((b.shortest + b.rng.Float64()*(b.longest-b.shortest)) * float64(time.Second))
		mu.Lock()
		free := !slices.ContainsFunc(b.parts(), func(p string) bool { return busy[p] })
		for _, p := range b.parts() {
			busy[p] = busy[p] || free
		}
		mu.Unlock()
		if free {
			each.Go(func() {
				b.run(ctx, lasts)
				mu.Lock()
				defer mu.Unlock()
				for _, p := range b.parts() {
					busy[p] = false
				}
			})
		}
		if !sleep(ctx, time.Duration(gap*float64(time.Second))) {
			return
		}
	}
	<-ctx.Done() // reached only if the options exclude all faults
}

// run starts a fault and ends it after the given time.
func (b *breaking) run(ctx context.Context, lasts time.Duration) {
	b.from = time.Now()
	b.mu.Lock()
	b.broken = append(b.broken, b)
	b.mu.Unlock()
	where := strings.TrimSpace(b.name + " " + b.node)
	b.time.add("fault %s begins", where)
	err := b.begin(b)
	if errors.Is(err, errNothing) {
		b.mu.Lock()
		b.to = b.from
		b.mu.Unlock()
		return
	}
	if err != nil {
		b.time.add("fault %s: %v", where, err)
	}
	if b.end != nil {
		sleep(ctx, lasts)
		if err := b.end(b); err != nil {
			b.time.add("fault %s, mending: %v", where, err)
			b.failed = true
		}
	}
	b.mu.Lock()
	b.to = time.Now()
	b.counts.faults[b.name]++
	b.mu.Unlock()
	b.time.add("fault %s ended %s", where, b.note)
}
