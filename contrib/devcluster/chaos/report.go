package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// adder returns a function that adds findings about violations of the given rule.
func (f *findings) adder(l *timeline, rule string) func(string, ...any) {
	return func(format string, args ...any) { f.add(l, rule, format, args...) }
}

// run runs campaigns for the time given in o and returns the number of findings. After a campaign with findings, the
// next one uses a new cluster.
func run(ctx context.Context, o options) (found int, err error) {
	end := time.Now().Add(o.length)
	sum := counts{faults: map[string]int{}, ends: map[string]int{}}
	fmt.Printf(
		"chaos: seed %d, %v, %d nodes with %d %s each; faults and jobs: %s\n",
		o.seed,
		o.length,
		o.nodes,
		o.gpus,
		o.model,
		strings.Join(o.kinds, " "),
	)
	for round := uint64(0); time.Now().Before(end); {
		c, err := newCampaign(ctx, o)
		if err != nil {
			return found, err
		}
		watched, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- c.watch(watched) }()
		for len(c.found.list()) == 0 && time.Now().Before(end) && err == nil {
			err = c.round(o.seed<<20 + round)
			if n := len(c.found.list()); err == nil {
				fmt.Printf("round %d: %d jobs submitted so far, findings %d\n", round, c.submitted, n)
			}
			round++
		}
		stop()
		if werr := <-done; err == nil {
			err = werr
		}
		c.work.Wait()
		found += len(c.found.list())
		c.report(err)
		sum.add(c.counts)
		if serr := c.stop(); err == nil {
			err = serr
		}
		if err != nil {
			return found, err
		}
	}
	fmt.Println(sum)
	fmt.Printf("findings %d\n", found)
	return found, ctx.Err()
}

func (a *counts) add(b counts) {
	a.rounds += b.rounds
	a.runs += b.runs
	a.snapshots += b.snapshots
	a.processes += b.processes
	for k, n := range b.faults {
		a.faults[k] += n
	}
	for k, n := range b.ends {
		a.ends[k] += n
	}
}

func (a counts) String() string {
	total := 0
	for _, n := range a.faults {
		total += n
	}
	return fmt.Sprintf(
		"rounds %d, snapshots %d, CUDA processes %d, runs of jobs %d (%s), faults %d of %d kinds (%s)",
		a.rounds,
		a.snapshots,
		a.processes,
		a.runs,
		tally(a.ends),
		total,
		len(a.faults),
		tally(a.faults),
	)
}

func tally(n map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprint(k, " ", n[k]))
	}
	return strings.Join(all, ", ")
}

// report prints the findings, the timeline before the first one, and the command that repeats the campaign. It also
// saves the logs.
func (c *campaign) report(broken error) {
	all := c.found.list()
	if len(all) == 0 && (broken == nil || c.ctx.Err() != nil) {
		return
	}
	dir, err := c.keepLogs()
	if err != nil {
		fmt.Println("chaos:", err)
	}
	for _, f := range all {
		fmt.Printf("\nFINDING %s at %s\n  %s\n", f.rule, f.at.Format("15:04:05"), f.text)
	}
	// All findings of a round are printed together, with a single timeline.
	last := time.Now()
	if len(all) > 0 {
		last = all[0].at
	}
	fmt.Println("\nfaults of the round:")
	for _, e := range c.time.round(last) {
		fmt.Println("   ", e)
	}
	fmt.Println("\ntimeline of the 30 s before the first finding:")
	for _, e := range c.time.around(last, 30*time.Second, time.Second) {
		fmt.Println("   ", e)
	}
	c.printCrashes()
	for _, f := range all {
		if id := ofJob.FindStringSubmatch(f.text); id != nil {
			fmt.Printf("\nlines about job %s in the daemons' logs:\n", id[1])
			c.printLogs(id[1])
		}
	}
	fmt.Printf(
		"\nlogs and the complete timeline: %s\nto repeat: devcluster-chaos %s\n\n",
		dir,
		strings.Join(os.Args[1:], " "),
	)
}

var ofJob = regexp.MustCompile(`\bjob (\d+)`)

// mostLines is the maximum number of lines about a job that are printed from one log.
const mostLines = 30

// printLogs prints the lines about a job from the daemons' logs, at most mostLines from each one.
func (c *campaign) printLogs(job string) {
	names := regexp.MustCompile(`(?i)\b(job|jobid|job_id|stepid)[:= "]*"?` + job + `\b`)
	logs, _ := filepath.Glob(filepath.Join(c.cluster.Dir, "log", "*.log"))
	for _, file := range logs {
		text, _ := os.ReadFile(file)
		n := 0
		for line := range strings.Lines(string(text)) {
			if names.MatchString(line) && n < mostLines {
				fmt.Printf("    %s: %s", strings.TrimSuffix(filepath.Base(file), ".log"), line)
				n++
			}
		}
	}
}

// crash matches what the shell that keeps a daemon (lib/unit.sh) writes after a crash, and the daemon's last line.
var crash = regexp.MustCompile(`(?m)^.*\n.*core dumped.*$`)

// printCrashes prints the daemons that have crashed, because the commands that fail afterwards do not show the cause.
func (c *campaign) printCrashes() {
	logs, _ := filepath.Glob(filepath.Join(c.cluster.Dir, "log", "*"))
	for _, file := range logs {
		text, _ := os.ReadFile(file)
		for _, lines := range crash.FindAllString(string(text), -1) {
			fmt.Printf("\na daemon has crashed (%s):\n%s\n", filepath.Base(file), lines)
		}
	}
}

// keepLogs copies the timeline and the logs of the daemons and emulators to a directory and returns its path.
func (c *campaign) keepLogs() (string, error) {
	if err := os.MkdirAll(c.o.keep, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(c.o.keep, fmt.Sprintf("chaos-%d-", c.o.seed))
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(filepath.Join(dir, "log"), os.DirFS(filepath.Join(c.cluster.Dir, "log"))); err != nil {
		return dir, err
	}
	var text strings.Builder
	for _, e := range c.time.around(time.Now(), 24*time.Hour, time.Hour) {
		fmt.Fprintln(&text, e)
	}
	ctx := context.WithoutCancel(c.ctx)
	for _, node := range c.nodes() {
		out, _, _ := c.cluster.ExecNode(ctx, node, "root", "nvml-emulator", "log")
		os.WriteFile(filepath.Join(dir, node+".emulator"), []byte(out), 0o644)
		out, stderr, _ := c.cluster.ExecNode(
			ctx,
			node,
			"root",
			"bash",
			"-c",
			"caelum status; caelum doctor; nvml-emulator show; ls -lA /run/caelum/jobs; scontrol -d show node "+node,
		)
		os.WriteFile(filepath.Join(dir, node+".state"), []byte(out+stderr), 0o644)
	}
	return dir, os.WriteFile(filepath.Join(dir, "timeline"), []byte(text.String()), 0o644)
}
