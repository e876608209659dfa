package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/mig"
	"caelum/internal/sim"
	"caelum/internal/trace"
)

// ways describes a comparison on a real Slurm: one job trace with whole GPUs, with the best fixed layouts, and with
// Caelum. All decisions are made before the first submission: seed, mix, load and mean duration determine the jobs, and
// the simulator searches for the best layouts for this trace.
type ways struct {
	jobs  int
	seed  uint64
	load  float64
	mean  float64 // seconds
	nodes int
	gpus  int // per node
	mixed bool
}

// board is a part of the cluster: the nodes of one GPU model, and the jobs for them.
type board struct {
	*mig.Model
	nodes  []string
	static sim.Pattern
	work   []trace.Job
}

// waysConf is the scheduling configuration in all scenarios: slurmctld's defaults, except for backfill every 2 s,
// because the jobs are much shorter than real jobs.
const waysConf = "SchedulerParameters=bf_interval=2,bf_continue,bf_hetjob_prio=min"

func benchWays(ctx context.Context, w ways) error {
	boards, err := w.boards()
	if err != nil {
		return err
	}
	fmt.Printf(
		"\nOne trace in three scenarios on a real Slurm: %d jobs, %s by size, load %.2f, mean duration %.0f s, "+
			"seed %d, "+
			"on %d nodes of %d GPUs:\n",
		w.jobs,
		trace.Mixes[0].Name,
		w.load,
		w.mean,
		w.seed,
		w.nodes,
		w.gpus,
	)
	for _, b := range boards {
		fmt.Printf(
			"  %s on %s; the best fixed layouts for these jobs: %s\n",
			b.Name,
			strings.Join(b.nodes, ", "),
			b.static.Names(b.Model),
		)
	}
	fmt.Printf("  %-8s %10s %10s %10s %10s %12s\n", "", "MEAN WAIT", "MEDIAN", "P95", "LONGEST", "MAKESPAN, UTIL")
	for _, way := range []string{"whole", "static", "caelum"} {
		if err := w.run(ctx, way, boards); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	return nil
}

// profileOf returns the profile of a GPU model that has as many compute slices and units as the named profile has on an
// A100-40GB, whose names the trace uses.
func profileOf(b *mig.Model, name string) string {
	a100, _ := mig.ModelByName("A100-40GB")
	i, _ := a100.ProfileIndex(name)
	for _, p := range b.Profiles {
		if p.Compute == a100.Profiles[i].Compute && p.Size == a100.Profiles[i].Size {
			return p.Name
		}
	}
	return name
}

func (w ways) boards() (all []*board, err error) {
	names := []string{"A100-40GB"}
	if w.mixed {
		names = append(names, "H100-80GB")
	}
	for k, name := range names {
		of, err := mig.ModelByName(name)
		if err != nil {
			return nil, err
		}
		b := &board{Model: of.Select(mig.Plain)}
		for n := k * w.nodes / len(names); n < (k+1)*w.nodes/len(names); n++ {
			b.nodes = append(b.nodes, fmt.Sprint("n", n+1))
		}
		gpus := slices.Repeat([]*mig.Model{b.Model}, len(b.nodes)*w.gpus)
		churn := trace.Churn{
			Mix:          trace.Mixes[0].Mix,
			Jobs:         w.jobs / len(names),
			GPUs:         len(gpus),
			Load:         w.load,
			MeanDuration: w.mean,
			Seed:         w.seed + uint64(k),
		}
		for j := range churn.All() {
			j.Profile = profileOf(b.Model, j.Profile)
			b.work = append(b.work, j)
		}
		b.static, err = sim.BestStatic(
			sim.Config{GPUs: gpus, Discipline: sim.EASY, Said: limit},
			slices.Values(b.work),
			func(x, y *sim.Result) bool {
				return x.MeanTurnaround() < y.MeanTurnaround()
			},
		)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// limit returns a job's time limit in seconds, a whole number of minutes as Slurm requires.
func limit(j trace.Job) float64 { return 60 * math.Ceil((j.Duration+1)/60) }

// asks returns the profile that a job requests: its own, or with fixed layouts the smallest sufficient profile of the
// layouts.
func (b *board) asks(way string, j trace.Job) (string, error) {
	p, _ := b.ProfileIndex(j.Profile)
	need := b.Profiles[p]
	var of mig.Layout
	switch way {
	case "caelum":
		return j.Profile, nil
	case "whole":
		of, _ = sim.Whole(b.Model)
	default:
		for _, l := range b.static {
			of |= l
		}
	}
	var fits []mig.Profile
	for i := range of.Indices() {
		if q := b.Profiles[b.Placements[i].Profile]; q.Size >= need.Size && q.Compute >= need.Compute {
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

// fixed returns the constant GRES of the k-th node of the GPU model.
func (b *board) fixed(way string, k, gpus int) string {
	layouts := b.static.Deal(len(b.nodes) * gpus)[k*gpus : (k+1)*gpus]
	if way == "whole" {
		whole, _ := sim.Whole(b.Model)
		layouts = slices.Repeat([]mig.Layout{whole}, gpus)
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

func (w ways) run(ctx context.Context, way string, boards []*board) (err error) {
	options := cluster.Options{Nodes: w.nodes, GPUs: w.gpus, NoAgent: way != "caelum", Conf: []string{waysConf}}
	var models []string
	for _, b := range boards {
		for range b.nodes {
			models = append(models, b.Name)
		}
	}
	options.Board = strings.Join(models, ",")
	c, down, err := up(ctx, "poll_interval: 1m\nwake_port: 6873\nlog_format: json\n", options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	if way != "caelum" {
		for _, b := range boards {
			for k, node := range b.nodes {
				if _, stderr, err := c.Exec(ctx, "root", "scontrol", "update", "nodename="+node,
					"gres="+b.fixed(way, k, w.gpus)); err != nil {
					return fmt.Errorf("%w: %s", err, stderr)
				}
			}
		}
	}
	work, err := w.submissions(way, boards)
	if err != nil {
		return err
	}
	if _, _, err := c.Exec(ctx, "root", "sdiag", "--reset"); err != nil {
		return err
	}
	began := time.Now()
	for _, s := range work {
		time.Sleep(time.Until(began.Add(s.at)))
		if way == "caelum" {
			if s.found, err = onOffer(ctx, c, s.profile); err != nil {
				return err
			}
		}
		out, stderr, err := c.Exec(
			ctx,
			"user1",
			append([]string{"sbatch", "--parsable", "-o", "/dev/null"}, s.args...)...)
		if err != nil {
			return fmt.Errorf("sbatch %v: %w: %s", s.args, err, stderr)
		}
		s.id = strings.TrimSpace(out)
	}
	if err := gone(ctx, c, time.Second); err != nil {
		return err
	}
	return w.report(ctx, way, c, work)
}

// submission is a job of the trace and the result of its submission.
type submission struct {
	at      time.Duration
	args    []string
	id      string
	found   bool    // its profile was offered immediately before the submission
	profile string  // the profile that the job needs
	seconds float64 // the duration of the job
	units   float64 // the units that the job needs, as a share of a GPU
}

func (w ways) submissions(way string, boards []*board) (all []*submission, err error) {
	for _, b := range boards {
		for _, j := range b.work {
			profile, err := b.asks(way, j)
			if err != nil {
				return nil, err
			}
			p, _ := b.ProfileIndex(j.Profile)
			all = append(all, &submission{
				at: time.Duration(
					j.Submit * float64(time.Second),
				), profile: j.Profile, seconds: j.Duration, units: float64(b.Profiles[p].Size) / float64(b.Grid),
				args: []string{
					"--gres=gpu:" + b.Type + ":1,mig:" + profile + ":1",
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

var logged = regexp.MustCompile(
	`(?m)^\[([^\]]+)\] .*?` +
		`(_slurm_rpc_submit_batch_job:|sched: Allocate|_start_job: Started|_job_complete:) JobId=(\d+)\b.*$`,
)

// report prints the row of a scenario, from the times of slurmctld's log, which are in milliseconds.
func (w ways) report(ctx context.Context, way string, c *cluster.Cluster, work []*submission) error {
	log, err := c.Log("slurmctld")
	if err != nil {
		return err
	}
	type times struct{ submit, start, end time.Time }
	jobs := map[string]*times{}
	for _, m := range logged.FindAllStringSubmatch(log, -1) {
		at, err := time.Parse("2006-01-02T15:04:05.000", m[1])
		if err != nil {
			return err
		}
		t := jobs[m[3]]
		if t == nil {
			t = &times{}
			jobs[m[3]] = t
		}
		switch m[2] {
		case "_slurm_rpc_submit_batch_job:":
			t.submit = at
		case "_job_complete:":
			t.end = at
		default:
			t.start = at
		}
	}
	var waits []float64
	var first, last time.Time
	needed := 0.0
	large := 0.0
	found, prompt := 0, 0
	for _, s := range work {
		t := jobs[s.id]
		if t == nil || t.submit.IsZero() || t.start.IsZero() || t.end.IsZero() {
			return fmt.Errorf("slurmctld's log does not contain the start and the end of job %s", s.id)
		}
		wait := t.start.Sub(t.submit).Seconds()
		waits = append(waits, wait)
		needed += s.units * s.seconds
		if first.IsZero() || t.submit.Before(first) {
			first = t.submit
		}
		if t.end.After(last) {
			last = t.end
		}
		if s.units == 1 {
			large = max(large, wait)
		}
		if s.found {
			found++
		}
		if s.found || wait < atOnce {
			prompt++
		}
	}
	slices.Sort(waits)
	sum := 0.0
	for _, x := range waits {
		sum += x
	}
	makespan := last.Sub(first).Seconds()
	fmt.Printf(
		"  %-8s %8.1f s %8.1f s %8.1f s %8.1f s %6.0f s, %.0f%%   (longest of a whole GPU %.1f s)\n",
		way,
		sum/float64(len(waits)),
		median(waits),
		waits[len(waits)*95/100],
		waits[len(waits)-1],
		makespan,
		100*needed/(makespan*float64(w.nodes*w.gpus)),
		large,
	)
	if way == "caelum" {
		fmt.Printf(
			"  %-8s of %d jobs whose profile was offered or that started within %.1f s, it was offered for %d: "+
				"%.1f%%\n",
			"",
			prompt,
			atOnce,
			found,
			100*float64(found)/float64(prompt),
		)
	}
	return w.cost(ctx, way, c)
}

// atOnce is the longest wait in seconds of a job for which there was room at its submission: one publication of an
// agent and slurmctld's next two scheduling cycles.
const atOnce = 2.5

// onOffer returns whether a slice of the profile is free on any node, according to slurmctld's counts.
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
		case strings.HasPrefix(line, "NodeName=mig-catalog"): // the catalogue node is not a real node
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

// cost prints the cost of the scenario for slurmctld, from sdiag.
func (w ways) cost(ctx context.Context, way string, c *cluster.Cluster) error {
	out, _, err := c.Exec(ctx, "root", "sdiag")
	if err != nil {
		return err
	}
	line := func(after, name string) string {
		_, rest, _ := strings.Cut(out, after)
		_, rest, _ = strings.Cut(rest, name+":")
		value, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(value)
	}
	fmt.Printf(
		"  %-8s mean main cycle %s us; mean backfill cycle %s us, depth %s\n",
		"",
		line("Main schedule", "Mean cycle"),
		line("Backfilling stats", "Mean cycle"),
		line("Backfilling stats", "Depth Mean"),
	)
	return nil
}
