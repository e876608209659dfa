package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"caelum/contrib/devcluster/cluster"
)

const (
	submissionRounds = 20
	learnedLines     = 10000
)

// submitWays lists the configurations of slurmctld that benchSubmissions compares.
var submitWays = []struct {
	name    string
	plugin  string // JobSubmitPlugins
	learned int    // number of learned lines in the decision table
}{
	{"without job_submit.lua", "", 0},
	{"with it", "lua", 0},
	{fmt.Sprintf("with %d learned lines", learnedLines), "lua", learnedLines},
}

// benchSubmissions measures the time that slurmctld takes to process a submission in each configuration, according to
// slurmctld's own statistics (sdiag). Each round runs through all configurations in random order. The jobs are held at
// submission and cancelled after each measurement. Their scripts are as long as the part that job_submit.lua hashes.
// The agent polls only once an hour, so it does not read the queue during the measurement.
func benchSubmissions(ctx context.Context, each int) (err error) {
	c, down, err := up(ctx, "poll_interval: 1h\n", cluster.Options{Nodes: 1, GPUs: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	s := &submitter{Cluster: c}
	times := make([][]float64, len(submitWays))
	var reads []float64
	for range submissionRounds {
		for _, i := range rand.Perm(len(submitWays)) {
			way := submitWays[i]
			if err := s.prepare(ctx, way.plugin, way.learned); err != nil {
				return err
			}
			if _, err := s.submit(ctx, 3); err != nil { // the first submission makes job_submit.lua read the table
				return err
			}
			us, err := s.submit(ctx, each/submissionRounds)
			if err != nil {
				return err
			}
			times[i] = append(times[i], us)
			if way.learned == 0 {
				continue
			}
			if err := s.table(ctx, way.learned); err != nil {
				return err
			}
			anew, err := s.submit(ctx, 1)
			if err != nil {
				return err
			}
			reads = append(reads, anew-us)
		}
	}
	fmt.Printf(
		"\nTime that slurmctld takes per submission, %d submissions in each configuration in %d rounds "+
			"(us, medians of the rounds' means):\n",
		each,
		submissionRounds,
	)
	for i, way := range submitWays {
		fmt.Printf("  %-28s %7.0f", way.name, median(times[i]))
		if i > 0 {
			compare(times[i], times[i-1])
		}
		fmt.Println()
	}
	low, high := interval(reads)
	fmt.Printf(
		"  %-28s %7.0f more, once (95%% interval %.0f to %.0f)\n",
		"reading the large table",
		median(reads),
		low,
		high,
	)
	return nil
}

// compare prints the median difference between a and b over all rounds.
func compare(a, b []float64) {
	var diff []float64
	for i := range a {
		diff = append(diff, a[i]-b[i])
	}
	low, high := interval(diff)
	fmt.Printf(", %+.0f compared with the previous line (95%% interval %+.0f to %+.0f)", median(diff), low, high)
}

// submitter is a cluster whose slurmctld runs with or without job_submit.lua.
type submitter struct {
	*cluster.Cluster
	generation int
	plugin     string
}

// root runs a shell command as root on slurmctld's host.
func (s *submitter) root(ctx context.Context, stdin, command string) (string, error) {
	cmd := s.Command(ctx, "", "root", "sh", "-c", command)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return string(out), nil
}

func (s *submitter) prepare(ctx context.Context, plugin string, learned int) error {
	s.plugin = plugin
	if err := s.table(ctx, learned); err != nil {
		return err
	}
	_, err := s.root(
		ctx,
		"",
		"sed -i '/^JobSubmitPlugins=/d' /etc/slurm/slurm.conf && "+
			"{ [ -z '"+plugin+"' ] || echo JobSubmitPlugins="+plugin+" >>/etc/slurm/slurm.conf; } && "+
			"scontrol reconfigure",
	)
	return err
}

// table replaces the decision table with its next generation, which contains the given number of learned lines. None of
// these lines matches a submitted script, and all kinds of lines occur equally often.
func (s *submitter) table(ctx context.Context, learned int) error {
	s.generation++
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"caelum-decisions 1 %d\npartition gpu\nprofile 2g.10gb 9856\nprofile 7g.40gb 40192\ndefault 7g.40gb\n",
		s.generation,
	)
	for i := range learned {
		work := fmt.Sprintf("%016x", rand.Uint64())
		user := strconv.Itoa(20000 + i%1000)
		of := [...]string{"key " + user + ":" + work, "user " + user + ":" + work, "site " + work}[i%3]
		fmt.Fprintf(&b, "%s 2g.10gb %d\n", of, 60+i)
	}
	_, err := s.root(
		ctx,
		b.String(),
		"cat >/etc/caelum/decisions.new && mv /etc/caelum/decisions.new /etc/caelum/decisions",
	)
	return err
}

// submit submits and cancels held jobs, and returns slurmctld's mean time per submission in microseconds.
func (s *submitter) submit(ctx context.Context, jobs int) (float64, error) {
	if _, err := s.root(ctx, "", "sdiag --reset"); err != nil {
		return 0, err
	}
	script := "#!/bin/sh\n" + strings.Repeat("# padding for the hash\n", 180)
	cmd := s.Command(
		ctx,
		"",
		"user1",
		"bash",
		"-c",
		`script=$(cat); for i in $(seq `+strconv.Itoa(
			jobs,
		)+`); do sbatch -H -p gpu --gres=gpu:1 -o /dev/null <<<"$script" || exit; done`,
	)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("sbatch: %w: %s", err, out)
	}
	stats, err := s.root(ctx, "", "sdiag")
	if err != nil {
		return 0, err
	}
	comments, err := s.root(ctx, "", "squeue -h -u user1 -O admin_comment:60; scancel -u user1")
	if err != nil {
		return 0, err
	}
	if sized := strings.Count(comments, "caelum:key="); s.plugin == "" && sized > 0 || s.plugin != "" && sized != jobs {
		return 0, fmt.Errorf("JobSubmitPlugins is %q, but job_submit.lua changed %d of %d jobs", s.plugin, sized, jobs)
	}
	byType, _, _ := strings.Cut(stats, "Remote Procedure Call statistics by user")
	for _, m := range rpcLine.FindAllStringSubmatch(byType, -1) {
		if m[1] == "REQUEST_SUBMIT_BATCH_JOB" && m[2] == strconv.Itoa(jobs) {
			total, err := strconv.Atoi(m[4])
			return float64(total) / float64(jobs), err
		}
	}
	return 0, fmt.Errorf("sdiag does not show %d submissions: %s", jobs, byType)
}
