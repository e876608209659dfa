// Command demo implements `make demo`. It starts a private Slurm cluster of two nodes with two emulated A100-40GB GPUs
// each, and submits 24 jobs whose scripts request only --gres=gpu:1. At the end, it prints a table of the jobs' slices.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// script describes a job script that the user submits several times.
type script struct {
	name    string
	memory  int    // the memory in MiB that the script allocates on its GPU
	profile string // the script's profile in the decision table; empty if the script is not in the table
}

var scripts = []script{
	{"notebook", 3000, "1g.5gb"},
	{"tokenize", 4500, "1g.5gb"},
	{"embed", 9000, "1g.10gb"},
	{"finetune", 9500, "2g.10gb"},
	{"train", 18000, "3g.20gb"},
	{"unknown", 30000, ""},
}

// rounds is the number of times that each script is submitted.
const rounds = 4

const user, uid = "user1", 20001

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	fmt.Println(
		"Starting a private Slurm cluster: slurmctld, slurmdbd, MariaDB, munge, 2 nodes with 2 emulated A100s each ...",
	)
	path, err := cluster.Script()
	if err != nil {
		return err
	}
	config := filepath.Join(filepath.Dir(path), "caelum.yaml")
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 2, GPUs: 2, AgentConfig: config})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			fmt.Println("\nStopping the cluster ...")
		}
		if serr := c.Stop(); err == nil {
			err = serr
		}
	}()
	if err := writeDecisions(ctx, c); err != nil {
		return err
	}
	ids, err := submit(ctx, c)
	if err != nil {
		return err
	}
	fmt.Printf(
		"%s submitted %d jobs. Each script's only option is \"#SBATCH --gres=gpu:1\". Status of n1:\n\n",
		user,
		len(ids),
	)
	showNode(ctx, c)
	jobs, err := wait(ctx, c, ids)
	if err != nil {
		return err
	}
	return report(c, jobs)
}

func batch(w script) string {
	return fmt.Sprintf(
		"#!/bin/bash\n#SBATCH --gres=gpu:1\ncuda-process --exclusive --memory %d --seconds 3 --print\n",
		w.memory,
	)
}

// writeDecisions adds the profiles of the user's scripts to the decision table, as Caelum does once it has observed
// earlier runs.
func writeDecisions(ctx context.Context, c *cluster.Cluster) error {
	old, _, err := c.Exec(ctx, "root", "cat", "/etc/caelum/decisions")
	if err != nil {
		return fmt.Errorf("couldn't read the decision table: %w", err)
	}
	_, rest, _ := strings.Cut(old, "\n")
	table := "caelum-decisions 1 2\n" + rest
	for _, w := range scripts {
		if w.profile != "" {
			key := predict.Key(
				predict.KeyInput{UID: uid, Account: "research", JobName: w.name, Script: batch(w), GPUs: 1, Nodes: 1},
			)
			table += fmt.Sprintf("key %d:%s %s # %s\n", uid, key, w.profile, w.name)
		}
	}
	cmd := c.Command(
		ctx,
		"",
		"root",
		"sh",
		"-c",
		"cat > /etc/caelum/decisions.new && mv /etc/caelum/decisions.new /etc/caelum/decisions",
	)
	cmd.Stdin = strings.NewReader(table)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't write the decision table: %w: %s", err, out)
	}
	return nil
}

// submit submits all jobs and returns their ids in the order of submission.
func submit(ctx context.Context, c *cluster.Cluster) ([]string, error) {
	home := filepath.Join(c.Dir, "home", user)
	for _, w := range scripts {
		if err := os.WriteFile(filepath.Join(home, w.name), []byte(batch(w)), 0o644); err != nil {
			return nil, err
		}
	}
	var ids []string
	for range rounds {
		for _, w := range scripts {
			out, stderr, err := c.Exec(ctx, user, "sbatch", "--parsable", w.name)
			if err != nil {
				return nil, fmt.Errorf("sbatch %s: %w: %s", w.name, err, stderr)
			}
			ids = append(ids, strings.TrimSpace(out))
		}
	}
	return ids, nil
}

func showNode(ctx context.Context, c *cluster.Cluster) {
	time.Sleep(4 * time.Second)
	out, stderr, err := c.ExecNode(ctx, "n1", "root", "caelum", "status")
	if err != nil {
		out = stderr
	}
	fmt.Println(indent(out))
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// job holds the data about a job from sacct and from the job's output file.
type job struct {
	id, name, state, node string
	waited                time.Duration
	tres                  string
	ran                   map[string]string // the values that cuda-process printed: uuid, gpu, profile, start
}

// wait returns the jobs once slurmdbd shows that all of them have ended.
func wait(ctx context.Context, c *cluster.Cluster, ids []string) ([]job, error) {
	for deadline := time.Now().Add(4 * time.Minute); ; {
		out, stderr, err := c.Exec(ctx, user, "sacct", "-X", "-n", "-P", "-j", strings.Join(ids, ","),
			"-o", "JobID,JobName,State,NodeList,Submit,Start,AllocTRES")
		if err != nil {
			return nil, fmt.Errorf("couldn't read the jobs with sacct: %w: %s", err, stderr)
		}
		jobs, ended := parse(c, out)
		if len(jobs) == len(ids) && ended == len(ids) {
			return jobs, nil
		}
		if time.Now().After(deadline) {
			queue, _, _ := c.Exec(ctx, "root", "squeue")
			return nil, fmt.Errorf("only %d of %d jobs ended within 4 minutes; the queue is:\n%s",
				ended, len(ids), queue)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func parse(c *cluster.Cluster, out string) (jobs []job, ended int) {
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 7 {
			continue
		}
		j := job{id: f[0], name: f[1], state: f[2], node: f[3], tres: gresOnly(f[6])}
		submitted, err1 := time.Parse("2006-01-02T15:04:05", f[4])
		started, err2 := time.Parse("2006-01-02T15:04:05", f[5])
		if err1 == nil && err2 == nil {
			j.waited = started.Sub(submitted)
		}
		switch f[2] {
		case "PENDING", "RUNNING", "REQUEUED", "SUSPENDED":
		default:
			ended++
			j.ran = ran(c, j.id)
		}
		jobs = append(jobs, j)
	}
	return jobs, ended
}

// gresOnly returns the GRES in an AllocTRES value.
func gresOnly(tres string) string {
	var some []string
	for _, t := range strings.Split(tres, ",") {
		if strings.HasPrefix(t, "gres/") {
			some = append(some, t)
		}
	}
	return strings.Join(some, " ")
}

// ran parses the output line of cuda-process in the job's output file.
func ran(c *cluster.Cluster, id string) map[string]string {
	words := map[string]string{}
	text, _ := os.ReadFile(filepath.Join(c.Dir, "home", user, "slurm-"+id+".out"))
	for _, w := range strings.Fields(string(text)) {
		if k, v, ok := strings.Cut(w, "="); ok {
			words[k] = v
		}
	}
	return words
}

// report prints the table. It returns an error if a job did not complete, if its slice is smaller than the expected
// profile, or if slurmctld did not count the expected profile.
func report(c *cluster.Cluster, jobs []job) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tNAME\tSTATE\tPROFILE\tNODE\tGPU\tSTART UNIT\tWAITED\tSACCT ALLOCTRES")
	bad := 0
	for _, j := range jobs {
		fmt.Fprintf(
			w,
			"%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\n",
			j.id,
			j.name,
			j.state,
			j.ran["profile"],
			j.node,
			j.ran["gpu"],
			j.ran["start"],
			j.waited,
			j.tres,
		)
		if j.state != "COMPLETED" || !atLeast(j.ran["profile"], expected(j.name)) ||
			!strings.Contains(j.tres, "gres/mig:"+expected(j.name)+"=1") ||
			!strings.Contains(j.tres, "gres/gpu=1") {
			bad++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		for _, j := range jobs {
			if j.state != "COMPLETED" {
				text, _ := os.ReadFile(filepath.Join(c.Dir, "home", user, "slurm-"+j.id+".out"))
				fmt.Printf("\noutput of job %s:\n%s", j.id, indent(string(text)))
			}
		}
		return fmt.Errorf("%d of %d jobs did not complete on a slice of the expected profile", bad, len(jobs))
	}
	fmt.Printf(
		"\nEach of the %d jobs requested the profile from the decision table (AllocTRES) "+
			"and ran on a slice of this profile or a larger one. The %q jobs are not in the table and "+
			"requested the default profile.\n",
		len(jobs),
		"unknown",
	)
	return nil
}

// atLeast reports whether a profile of the A100-40GB has at least as many compute slices and units as another.
func atLeast(profile, least string) bool {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return false
	}
	p, ok := b.ProfileIndex(profile)
	q, known := b.ProfileIndex(least)
	return ok && known && b.Profiles[p].Compute >= b.Profiles[q].Compute && b.Profiles[p].Size >= b.Profiles[q].Size
}

func expected(name string) string {
	for _, w := range scripts {
		if w.name == name && w.profile != "" {
			return w.profile
		}
	}
	return "7g.40gb"
}
