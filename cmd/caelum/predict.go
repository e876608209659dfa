package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/agent"
	"caelum/internal/learn"
	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
)

// predictOptions say of which job; the script's are those that sbatch would be given.
type predictOptions struct {
	repoOptions
	key, script, user, account, jobName string
	gpus, nodes, tasks, cpus            int
}

func newPredict(g *globals) *cobra.Command {
	var o predictOptions
	cmd := &cobra.Command{
		Use:   "predict (ID | --key KEY | --script FILE)",
		Short: "Say which profile a job would be given, and why: by which earlier runs",
		Long: `predict asks the repository of this host what a job needs by its earlier runs. The job is one that slurmctld or slurmdbd knows, or a key, or a script with the options that
sbatch would be given: those in the script's #SBATCH lines too, since a job's key is made of what they say together.`,
		Example: `  caelum predict 4711
  caelum predict --key 16e6c08ad68451a8 --user user1 --json
  caelum predict --script train.sh --gpus 1 --account research --user user1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPredict(cmd.Context(), cmd.OutOrStdout(), g, o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(
		&o.config,
		"config",
		agent.DefaultConfig,
		"caelumd's configuration, for the keys repo, table, margin, share, share_users and max_slowdown",
	)
	f.StringVar(&o.path, "repo", "", "the repository; default: the configuration's repo")
	f.StringVar(&o.table, "table", "", "the decision table; default: the configuration's table")
	f.StringVar(&o.board, "board", "", "predict for this board, whatever the decision table lists")
	f.StringVar(&o.key, "key", "", "the job's key: 16 hexadecimal digits")
	f.StringVar(&o.script, "script", "", "the batch script")
	f.StringVar(
		&o.user,
		"user",
		"",
		"the job's user, by name or id; default: the only user with runs of the key, else yourself",
	)
	f.StringVar(&o.account, "account", "", "the job's account, also where it is the user's default")
	f.StringVar(&o.jobName, "job-name", "", "the job's name; default: the script's, as with sbatch")
	f.IntVar(&o.gpus, "gpus", 1, "GPUs on each node")
	f.IntVar(&o.nodes, "nodes", 1, "nodes")
	f.IntVar(&o.tasks, "ntasks", 0, "tasks, if the job says how many")
	f.IntVar(&o.cpus, "cpus-per-task", 0, "CPUs per task, if the job says how many")
	return cmd
}

// predicted is the answer, also as JSON.
type predicted struct {
	Key   string        `json:"key,omitempty"`
	Work  string        `json:"work,omitempty"`
	Level predict.Level `json:"level"` // whose runs it rests on: key, user, site; empty: nobody's
	// the default's where none holds it; empty: no GPU model is known
	Profile    string      `json:"profile,omitempty"`
	Default    string      `json:"default,omitempty"` // the decision table's
	Own        string      `json:"own,omitempty"`     // what a line of the table's admin gives it instead
	Board      string      `json:"board,omitempty"`
	NeededMiB  float64     `json:"needed_mib,omitempty"`
	HighestMiB float64     `json:"highest_mib,omitempty"`
	Seconds    float64     `json:"seconds,omitempty"`
	Low        float64     `json:"seconds_low,omitempty"`
	High       float64     `json:"seconds_high,omitempty"`
	Used       int         `json:"runs_used"`
	Why        string      `json:"why,omitempty"`
	Runs       []repo.Line `json:"runs"`
	runs       []predict.Run
	noScript   bool
	anyBoard   bool // there is one to predict a profile of
}

func runPredict(ctx context.Context, w io.Writer, g *globals, o predictOptions, args []string) error {
	asking, cancel := context.WithTimeout(ctx, slurmTimeout)
	defer cancel()
	of, err := o.of(asking, args)
	if err != nil {
		return err
	}
	r, cfg, err := o.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	t, err := o.decisions(cfg)
	if err != nil {
		return err
	}
	if o.key != "" {
		if of.UID, err = o.keyOwner(r, o.key); err != nil {
			return err
		}
	}
	if of.UID != uint32(os.Getuid()) && o.ownOnly(cfg) {
		return errors.New("it is another user's, and your own runs say nothing of it: ask an administrator")
	}
	need, h, ok, err := r.Predict(of, cfg.Site())
	if err != nil {
		return err
	}
	p := predicted{
		Key:      of.Key,
		Work:     of.Fingerprint,
		Default:  t.Default,
		Own:      t.Own(of, need.Level),
		Runs:     lines(h.Runs),
		runs:     h.Runs,
		noScript: of.Fingerprint == "" && o.key == "",
		anyBoard: len(t.Models) > 0,
	}
	if ok || need.PeakMiB > 0 {
		p.Level, p.NeededMiB, p.HighestMiB, p.Used, p.Why = need.Level, need.PeakMiB, need.HighestMiB, need.Runs, need.Why
		given := learn.Give(need, ok, t.Models, t.Default)
		p.Profile, p.Seconds, p.Low, p.High = given.Profile, tenths(
			given.Seconds,
		), tenths(
			given.Low,
		), tenths(
			given.High,
		)
		if given.Model != nil {
			p.Board = given.Model.Name
		}
	}
	if g.json {
		return printJSON(w, p)
	}
	return printPrediction(w, p)
}

// of is what the job is known by.
func (o predictOptions) of(ctx context.Context, args []string) (repo.Of, error) {
	given := len(args)
	for _, s := range []string{o.key, o.script} {
		if s != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return repo.Of{}, usageError{errors.New("name a job by its id, or by --key, or by --script")}
	case o.key != "":
		return repo.Of{Key: o.key}, checkKey(o.key) // its user: keyOwner
	case o.script != "":
		return o.ofScript()
	}
	id, _, err := jobRef(args[0]) // the tasks of an array have one key
	if err != nil {
		return repo.Of{}, err
	}
	return ofJob(ctx, slurm.New(slurm.Options{}), id)
}

// ofScript makes key and work as job_submit.lua does.
func (o predictOptions) ofScript() (repo.Of, error) {
	script, err := os.ReadFile(o.script)
	if err != nil {
		return repo.Of{}, err
	}
	uid, err := userID(o.user)
	if err != nil {
		return repo.Of{}, err
	}
	if o.account == "" {
		return repo.Of{}, usageError{
			errors.New(
				"--account is missing: a job's key has its account in it, also where that is the user's default",
			),
		}
	}
	if o.gpus < 1 || o.nodes < 1 || o.tasks < 0 || o.cpus < 0 {
		return repo.Of{}, usageError{
			errors.New("--gpus and --nodes are at least 1, --ntasks and --cpus-per-task not below 0"),
		}
	}
	in := predict.KeyInput{
		UID:         uid,
		Account:     o.account,
		JobName:     o.jobName,
		Script:      string(script),
		GPUs:        o.gpus,
		Nodes:       o.nodes,
		Tasks:       o.tasks,
		CPUsPerTask: o.cpus,
	}
	if in.JobName == "" {
		in.JobName = filepath.Base(o.script)
	}
	return repo.Of{Key: predict.Key(in), Fingerprint: predict.Fingerprint(in), UID: uid}, nil
}

// keyOwner returns the id of the user whose key is meant: the one that is named, else the only one with runs of the
// key.
func (o predictOptions) keyOwner(r *repo.Repo, key string) (uint32, error) {
	if o.user != "" {
		return userID(o.user)
	}
	owners, err := r.Owners(key)
	switch {
	case err != nil:
		return 0, err
	case len(owners) > 1:
		return 0, usageError{fmt.Errorf("%d users have runs of the key %s: name one with --user", len(owners), key)}
	case len(owners) == 1:
		return owners[0], nil
	}
	return uint32(os.Getuid()), nil
}

// userID is the id of a user by name or number; of who asks without either.
func userID(name string) (uint32, error) {
	if name == "" {
		return uint32(os.Getuid()), nil
	}
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), err
}

// ofJob asks slurmctld, and slurmdbd where that has forgotten the job.
func ofJob(ctx context.Context, ctl *slurm.Client, id uint32) (repo.Of, error) {
	j, err := ctl.Job(ctx, id)
	comment, uid := j.AdminComment, j.UID
	if errors.Is(err, slurm.ErrNoJob) {
		var records []slurm.Record
		if records, err = ctl.RecordsOf(ctx, slurm.AdminComment, id); err == nil {
			last := records[len(records)-1]
			comment, uid = last.Comment, last.UID
		}
	}
	if err != nil {
		return repo.Of{}, err
	}
	of := repo.Of{
		Key:         slurm.TagValue(comment, slurm.TagKey),
		Fingerprint: slurm.TagValue(comment, slurm.TagFingerprint),
		UID:         uid,
	}
	if of.Key == "" {
		return of, fmt.Errorf(
			"job %d has no caelum:key= in its AdminComment: job_submit.lua has not seen it, or it asked for no GPU",
			id,
		)
	}
	return of, nil
}

// whose says whose runs a prediction rests on.
var whose = map[predict.Level]string{
	predict.ByKey:  "of this key",
	predict.ByUser: "of the same script by the same user",
	predict.BySite: "of the same script by anybody",
}

func printPrediction(w io.Writer, p predicted) error {
	fmt.Fprintf(w, "key %s", p.Key)
	if p.Work != "" {
		fmt.Fprintf(w, ", work %s", p.Work)
	}
	fmt.Fprintln(w)
	if p.Own != "" {
		fmt.Fprintf(w, "a line of its own in the decision table gives it %s, whatever its runs say\n", p.Own)
	}
	if p.Level == predict.Unknown && p.noScript {
		fmt.Fprintln(w, "a job without a script (srun, salloc) has nothing that tells what it runs")
	}
	if p.Level == predict.Unknown {
		_, err := fmt.Fprintf(w, "no earlier run says what it needs: it gets the default%s\n", parenthesized(p.Default))
		return err
	}
	switch {
	case p.Profile != "":
		fmt.Fprintf(w, "profile %s of %s\n", p.Profile, p.Board)
	case !p.anyBoard:
		fmt.Fprintln(w, "no decision table here: name a --board to see the profile")
	default:
		fmt.Fprintln(w, "no profile has so much")
	}
	fmt.Fprintf(
		w,
		"needs %.0f MiB, by %d of %d runs %s, of which the highest peak is %.0f MiB\n",
		p.NeededMiB,
		p.Used,
		len(p.runs),
		whose[p.Level],
		p.HighestMiB,
	)
	if p.Why != "" {
		fmt.Fprintln(w, printable(p.Why))
	}
	if p.Seconds > 0 {
		fmt.Fprintf(
			w,
			"runs for %s, most likely between %s and %s\n",
			inSeconds(p.Seconds),
			inSeconds(p.Low),
			inSeconds(p.High),
		)
	}
	return printRuns(w, p.runs)
}

func tenths(s float64) float64 { return math.Round(10*s) / 10 }

func parenthesized(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func inSeconds(s float64) time.Duration { return time.Duration(math.Round(s)) * time.Second }
