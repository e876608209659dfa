package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// scenarios describes a comparison on a real Slurm cluster, in which the same trace of jobs runs with whole GPUs, with
// the best fixed layouts, and with Caelum. Everything is determined before the first submission: the seed, mix, load
// and mean duration determine the jobs, and the simulator searches for the best layouts for the trace.
type scenarios struct {
	jobs  int
	seed  uint64
	load  float64
	mean  float64 // seconds
	nodes int
	gpus  int // per node
	mixed bool
	multi float64 // the fraction of jobs that need several full GPUs (multi.go)
	// latency is true if the emulated drivers have the latencies of real drivers. If only is not empty, no other
	// scenario is run.
	latency bool
	only    string
}

// subcluster is the part of the cluster with one GPU model: the nodes that have it, and the jobs for these nodes.
type subcluster struct {
	*mig.Model
	nodes  []string
	static sim.Pattern
	work   []trace.Job
}

// scenarioConf is the scheduler's configuration in all scenarios. Because the trace's jobs are much shorter than real
// jobs, backfill runs every 2 s, instead of slurmctld's default of 30 s.
const scenarioConf = "SchedulerParameters=bf_interval=2,bf_continue,bf_hetjob_prio=min"

func benchScenarios(ctx context.Context, s scenarios) error {
	subclusters, err := s.subclusters()
	if err != nil {
		return err
	}
	fmt.Printf(
		"\nOne trace in three scenarios on a real Slurm cluster: %d jobs, %s by size, load %.2f, "+
			"mean duration %.0f s, seed %d, on %d nodes of %d GPUs:\n",
		s.jobs,
		trace.Mixes[0].Name,
		s.load,
		s.mean,
		s.seed,
		s.nodes,
		s.gpus,
	)
	for _, b := range subclusters {
		fmt.Printf(
			"  %s on %s; the best fixed layouts for these jobs: %s\n",
			b.Name,
			strings.Join(b.nodes, ", "),
			b.static.Names(b.Model),
		)
	}
	if s.multi == 0 {
		fmt.Printf("  %-8s %10s %10s %10s %10s %12s\n", "", "MEAN WAIT", "MEDIAN", "P95", "LONGEST", "MAKESPAN, UTIL")
	}
	for _, scenario := range []string{"whole", "static", "caelum"} {
		if s.only != "" && s.only != scenario {
			continue
		}
		if err := s.run(ctx, scenario, subclusters); err != nil {
			return fmt.Errorf("%s: %w", scenario, err)
		}
	}
	return nil
}

// profileOf returns the profile of b that has as many compute slices and units as the A100-40GB profile with the given
// name. The trace uses the A100-40GB's profile names.
func profileOf(b *mig.Model, name string) string {
	a100, _ := mig.ModelByName("A100-40GB")
	i, ok := a100.ProfileIndex(name)
	if !ok {
		return name // mig.Full
	}
	for _, p := range b.Profiles {
		if p.Compute == a100.Profiles[i].Compute && p.Size == a100.Profiles[i].Size {
			return p.Name
		}
	}
	return name
}

func (s scenarios) subclusters() (all []*subcluster, err error) {
	if s.multi > 0 {
		b, err := s.multiSubcluster()
		return []*subcluster{b}, err
	}
	names := []string{"A100-40GB"}
	if s.mixed {
		names = append(names, "H100-80GB")
	}
	for k, name := range names {
		of, err := mig.ModelByName(name)
		if err != nil {
			return nil, err
		}
		b := &subcluster{Model: of.Select(mig.Plain)}
		for n := k * s.nodes / len(names); n < (k+1)*s.nodes/len(names); n++ {
			b.nodes = append(b.nodes, fmt.Sprint("n", n+1))
		}
		gpus := slices.Repeat([]*mig.Model{b.Model}, len(b.nodes)*s.gpus)
		churn := trace.Churn{
			Mix:          trace.Mixes[0].Mix,
			Jobs:         s.jobs / len(names),
			GPUs:         len(gpus),
			Load:         s.load,
			MeanDuration: s.mean,
			Seed:         s.seed + uint64(k),
		}
		for j := range churn.All() {
			j.Profile = profileOf(b.Model, j.Profile)
			b.work = append(b.work, j)
		}
		b.static, err = sim.BestStatic(
			sim.Config{GPUs: gpus, Discipline: sim.EASY, Estimate: limit},
			b.work,
			func(x, y *sim.Result) bool {
				return x.MeanTurnaround() < y.MeanTurnaround()
			},
			nil,
		)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// limit returns a job's time limit in seconds, rounded to whole minutes as Slurm requires.
func limit(j trace.Job) float64 { return 60 * math.Ceil((j.Duration+1)/60) }

// asks returns the profile that a job requests. With fixed layouts, this is the smallest profile in the layouts that is
// large enough; in the other scenarios, it is the profile that the job needs.
func (b *subcluster) asks(scenario string, j trace.Job) (string, error) {
	p, _ := b.ProfileIndex(j.Profile)
	need := b.Profiles[p]
	var of mig.Layout
	switch scenario {
	case "caelum":
		return j.Profile, nil
	case "whole":
		of = b.whole()
	default:
		for _, l := range b.static {
			of |= l
		}
	}
	var fits []mig.Profile
	for i := range of.Indices() {
		q := b.Profiles[b.Placements[i].Profile]
		if q.Size >= need.Size && q.Compute >= need.Compute && (j.Profile != mig.Full || q.Name == mig.Full) {
			fits = append(fits, q)
		}
	}
	if len(fits) == 0 {
		return "", fmt.Errorf("no slice of the fixed layouts is large enough for %s", j.Profile)
	}
	return slices.MinFunc(fits, func(x, y mig.Profile) int {
		return cmp.Or(cmp.Compare(x.Size, y.Size), cmp.Compare(x.Compute, y.Compute))
	}).Name, nil
}

// whole returns the layout in which the GPU is a single device. If the trace contains jobs with several GPUs, the
// device is a full GPU; otherwise, it is a slice.
func (b *subcluster) whole() mig.Layout {
	if l := b.Full(); l != 0 {
		return l
	}
	l, _ := sim.OneInstance(b.Model)
	return l
}

// fixed returns the value of Gres in slurm.conf for the k-th node with the GPU model. No agent changes it.
func (b *subcluster) fixed(scenario string, k, gpus int) string {
	layouts := b.static.Deal(len(b.nodes) * gpus)[k*gpus : (k+1)*gpus]
	if scenario == "whole" {
		layouts = slices.Repeat([]mig.Layout{b.whole()}, gpus)
	}
	count := map[string]int{}
	for _, l := range layouts {
		for i := range l.Indices() {
			count[b.ProfileOf(i)]++
		}
	}
	list := fmt.Sprintf("gpu:%s:%d", b.Type, 7*gpus)
	for _, p := range b.Profiles {
		list += fmt.Sprintf(",mig:%s:%d", p.Name, count[p.Name])
	}
	return list
}

func (s scenarios) run(ctx context.Context, scenario string, subclusters []*subcluster) (err error) {
	caelum := scenario == "caelum"
	options := cluster.Options{Nodes: s.nodes, GPUs: s.gpus, NoAgent: !caelum, Conf: []string{scenarioConf}}
	var models []string
	for _, b := range subclusters {
		for range b.nodes {
			models = append(models, b.Name)
		}
	}
	options.Model = strings.Join(models, ",")
	config := "poll_interval: 1m\nwake_port: 6873\nlearn: false\nlog_format: json\n"
	if s.multi > 0 {
		config += "whole_gpus: auto\n"
	}
	c, down, err := up(ctx, config, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	if caelum && s.latency {
		if err := s.slow(ctx, c); err != nil {
			return err
		}
	}
	if !caelum {
		if err := s.fix(ctx, scenario, c, subclusters); err != nil {
			return err
		}
	}
	work, err := s.submissions(scenario, subclusters)
	if err != nil {
		return err
	}
	if _, _, err := c.Exec(ctx, "root", "sdiag", "--reset"); err != nil {
		return err
	}
	if err := s.submit(ctx, c, work, caelum && s.multi == 0); err != nil {
		return err
	}
	if err := gone(ctx, c, time.Second); err != nil {
		return err
	}
	return s.report(ctx, scenario, c, work)
}

// submit submits each job at its scheduled time, so a slow sbatch does not delay later jobs. If check is true, it
// records for each job whether its profile is on offer.
func (s scenarios) submit(ctx context.Context, c *cluster.Cluster, work []*submission, check bool) error {
	began := time.Now()
	failed := make([]error, len(work))
	var all sync.WaitGroup
	for k, j := range work {
		time.Sleep(time.Until(began.Add(j.at)))
		all.Go(func() {
			if check {
				if j.found, failed[k] = onOffer(ctx, c, j.profile); failed[k] != nil {
					return
				}
			}
			args := append([]string{"sbatch", "--parsable", "-o", "/dev/null"}, j.args...)
			out, stderr, err := c.Exec(ctx, "user1", args...)
			if err != nil {
				failed[k] = fmt.Errorf("sbatch %v: %w: %s", j.args, err, stderr)
			}
			j.id = strings.TrimSpace(out)
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// fix writes the fixed layouts of a scenario into the nodes' Gres.
func (s scenarios) fix(ctx context.Context, scenario string, c *cluster.Cluster, subclusters []*subcluster) error {
	for _, b := range subclusters {
		for k, node := range b.nodes {
			if _, stderr, err := c.Exec(ctx, "root", "scontrol", "update", "nodename="+node,
				"gres="+b.fixed(scenario, k, s.gpus)); err != nil {
				return fmt.Errorf("%w: %s", err, stderr)
			}
		}
	}
	return nil
}

// submission describes one of the trace's jobs and the outcome of its submission.
type submission struct {
	at      time.Duration
	args    []string
	id      string
	found   bool    // the profile was on offer immediately before the submission
	profile string  // the profile that the job needs
	seconds float64 // the job's duration
	units   float64 // the units that the job needs, as a fraction of a GPU
	gpus    int     // the number of GPUs or slices
}

func (s scenarios) submissions(scenario string, subclusters []*subcluster) (all []*submission, err error) {
	for _, b := range subclusters {
		for _, j := range b.work {
			profile, err := b.asks(scenario, j)
			if err != nil {
				return nil, err
			}
			p, _ := b.ProfileIndex(j.Profile)
			n := max(j.Slices, 1)
			gres := fmt.Sprintf("--gres=gpu:%s:%d,mig:%s:%d", b.Type, n, profile, n)
			if scenario == "caelum" && n > 1 {
				gres = fmt.Sprintf("--gres=gpu:%d", n) // the request that an unchanged script makes
			}
			all = append(all, &submission{
				at:      time.Duration(j.Submit * float64(time.Second)),
				profile: j.Profile,
				seconds: j.Duration,
				units:   float64(n*b.Profiles[p].Size) / float64(b.Grid),
				gpus:    n,
				args: []string{
					gres,
					fmt.Sprintf("--time=%.0f", limit(j)/60),
					"--wrap",
					fmt.Sprintf("exec sleep %.2f", j.Duration),
				},
			})
		}
	}
	slices.SortStableFunc(all, func(a, b *submission) int { return cmp.Compare(a.at, b.at) })
	return all, nil
}

// onOffer reports whether a slice of the profile is free on a node, according to slurmctld's counts.
func onOffer(ctx context.Context, c *cluster.Cluster, profile string) (bool, error) {
	out, stderr, err := c.Exec(ctx, "root", "scontrol", "-d", "show", "node")
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, stderr)
	}
	count := func(list string) (n int) {
		_, rest, _ := strings.Cut(list, "mig:"+profile+":")
		fmt.Sscanf(rest, "%d", &n)
		return n
	}
	total := 0
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "NodeName=mig-catalog"): // catalogue nodes have no slices
			total = -1 << 30
		case strings.HasPrefix(line, "NodeName="):
			total = 0
		case strings.HasPrefix(line, "Gres="):
			total += count(line)
		case strings.HasPrefix(line, "GresUsed="):
			if total > count(line) {
				return true, nil
			}
		}
	}
	return false, nil
}
