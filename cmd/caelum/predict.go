package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/cli/jobreport"
	"caelum/internal/config"
	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// predictOptions holds the flags of caelum predict. Most of them correspond to options of sbatch and describe the job
// that would be submitted with --script.
type predictOptions struct {
	repoOptions
	key, script, user, account, jobName string
	limit                               string
	gpus, nodes, tasks, cpus            int
}

func newPredict(g *globals) *cobra.Command {
	o := predictOptions{repoOptions: repoOptions{globals: g}}
	cmd := &cobra.Command{
		Use:   "predict (ID | (--key KEY | --script FILE) [-- ARGUMENT...])",
		Short: "Predict the profile of a job from earlier runs",
		Long: `predict estimates a job's memory use and run time from the earlier runs in this host's repository,
and selects a profile. It prints the profile that the job would request, and the runs on which the
prediction is based. If GPUs are idle, the job may get a larger slice.

A job that could reach its time limit on the predicted profile requests a larger one; predict then
prints both. If the user named a profile for the job, Caelum does not change it, and the prediction
applies only to jobs that name none.

Specify the job by its id (if slurmctld or slurmdbd has a record of it), by its key, or by a batch
script. With --script, also specify the submission options, including those on #SBATCH lines: the
job's key depends on them, and predict does not read these lines. If the script has arguments,
specify them after --.`,
		Example: `  caelum predict 4711
  caelum predict --key 16e6c08ad68451a8 --user user1 --json
  caelum predict --script train.sh --gpus 1 --account research --user user1
  caelum predict --script train.sh --account research -- 2000 --batch=64`,
		Args: func(cmd *cobra.Command, args []string) error {
			before := cmd.ArgsLenAtDash() // the others are the script's arguments
			if before < 0 {
				before = len(args)
			}
			if before > 0 && (o.key != "" || o.script != "") {
				return errWhichJob
			}
			return cobra.MaximumNArgs(1)(cmd, args[:before])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPredict(cmd.Context(), cmd.OutOrStdout(), g, o, args)
		},
	}
	f := cmd.Flags()
	o.addFlags(f)
	f.StringVar(&o.model, "board", "", "the GPU model; default: the GPU models in the decision table")
	f.StringVar(&o.key, "key", "", "the job's key: 16 hexadecimal digits")
	f.StringVar(&o.script, "script", "", "the batch script")
	f.StringVar(&o.user, "user", "",
		"name or id of the job's user; default: the only user with runs of the key, or else the calling user")
	f.StringVar(&o.account, "account", "", "the job's account; required even if it is the user's default "+
		"account")
	f.StringVar(&o.jobName, "job-name", "", "the job's name; default: the name of the script, as in sbatch")
	f.StringVar(&o.limit, "time", "", "the job's time limit: minutes or [D-]HH:MM:SS; default: no limit")
	f.IntVar(&o.gpus, "gpus", 1, "number of GPUs on each node")
	f.IntVar(&o.nodes, "nodes", 1, "number of nodes")
	f.IntVar(&o.tasks, "ntasks", 0, "number of tasks, if the job specifies it")
	f.IntVar(&o.cpus, "cpus-per-task", 0, "CPUs per task, if the job specifies them")
	return cmd
}

// predicted is the JSON output of caelum predict.
type predicted struct {
	Key         string        `json:"key,omitempty"`
	Fingerprint string        `json:"work,omitempty"` // script fingerprint
	Level       predict.Level `json:"level"`          // of the runs (predict.Level); empty without runs
	// Args holds the numbers in the arguments of the job's script.
	Args []float64 `json:"args,omitempty"`
	// Profile is the predicted profile, or the default profile if no profile has enough memory. It is empty if no GPU
	// model is known.
	Profile string `json:"profile,omitempty"`
	Default string `json:"default,omitempty"` // the decision table's default profile
	// Source is the source of the runs: the repository or slurmdbd. SourceRuns is the total number of runs in this
	// source.
	Source     string `json:"source"`
	SourceRuns int    `json:"source_runs"`
	// TimeLimit is the job's time limit in seconds, or 0 if it is unknown or the job has none. Requests is set if the
	// job requests a profile larger than Profile because of this limit.
	TimeLimit int    `json:"time_limit,omitempty"`
	Requests  string `json:"requests,omitempty"`
	// Named is the profile that the user requested by name. In this case, the prediction does not apply to the job.
	Named string `json:"named,omitempty"`
	// Own is the profile set by an administrator's line in the decision table. It overrides Profile.
	Own        string  `json:"own,omitempty"`
	Model      string  `json:"board,omitempty"`
	NeededMiB  float64 `json:"needed_mib,omitempty"`
	HighestMiB float64 `json:"highest_mib,omitempty"`
	Seconds    float64 `json:"seconds,omitempty"`
	// On lists the expected run time on each of Model's profiles that has enough memory, from smallest to largest.
	On []profileTime `json:"on,omitempty"`
	// Busy is the job's busy share in percent. BusyKnown is false if it cannot be determined from any run.
	Busy      int         `json:"busy,omitempty"`
	BusyKnown bool        `json:"busy_known,omitempty"`
	Low       float64     `json:"seconds_low,omitempty"`
	High      float64     `json:"seconds_high,omitempty"`
	Used      int         `json:"runs_used"`
	Why       string      `json:"why,omitempty"`
	Runs      []repo.Line `json:"runs"`
	runs      []predict.Run
	learning  string // the state of learning, or empty if it is unknown
	noScript  bool
	anyModel  bool // true if at least one GPU model is known
}

// profileTime is an expected run time on a profile, in seconds.
type profileTime struct {
	Profile string  `json:"profile"`
	Seconds float64 `json:"seconds"`
}

// timesOn returns the expected run times on the profiles of b that have enough memory for need.
func timesOn(need predict.Need, b *mig.Model) (all []profileTime) {
	for k := range b.Profiles {
		if p := &b.Profiles[k]; mig.Plain(*p) && p.Memory() >= need.PeakMiB {
			seconds, _, _ := need.TakesOn(b, k)
			all = append(all, profileTime{p.Name, tenths(seconds)})
		}
	}
	return all
}

func runPredict(ctx context.Context, w io.Writer, g *globals, o predictOptions, args []string) error {
	asking, cancel := context.WithTimeout(ctx, slurmTimeout)
	defer cancel()
	named, err := o.job(asking, args)
	if err != nil {
		return err
	}
	job := named.JobKeys
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
		if job, err = o.jobOfKey(r, job.Args); err != nil {
			return err
		}
	}
	if job.UID != uint32(os.Getuid()) && o.ownOnly(cfg) {
		return errors.New("the job belongs to another user, but you may read only your own runs; ask an " +
			"administrator to run this command")
	}
	given, err := t.Predict(r, job, cfg.Site())
	if err != nil {
		return err
	}
	p := newPredicted(job, given, t)
	p.noScript = job.Fingerprint == "" && o.key == ""
	p.setRequest(named, given, t)
	if err := p.setSource(o.repoOptions, cfg, r); err != nil {
		return err
	}
	if g.json {
		return printJSON(w, p)
	}
	return printPrediction(w, p)
}

// newPredicted returns the output for a job and its prediction.
func newPredicted(job repo.JobKeys, given learn.Prediction, t learn.Table) predicted {
	p := predicted{
		Key:         job.Key,
		Fingerprint: job.Fingerprint,
		Args:        job.Args,
		Default:     t.Default,
		Own:         given.Own,
		Runs:        lines(given.History.Runs),
		runs:        given.History.Runs,
		anyModel:    len(t.Models) > 0,
	}
	if need := given.Need; need.Level != predict.Unknown {
		p.Level, p.NeededMiB, p.HighestMiB = need.Level, need.PeakMiB, need.HighestMiB
		p.Used, p.Why = need.Runs, need.Why
		p.Profile = given.Profile
		p.Seconds, p.Low, p.High = tenths(given.Seconds), tenths(given.Low), tenths(given.High)
		if given.Model != nil {
			p.Model = given.Model.Name
		}
		if given.Model != nil && given.Seconds > 0 {
			p.On = timesOn(need, given.Model)
			p.Busy, p.BusyKnown = int(math.Round(100*need.Busy)), need.BusyKnown
		}
	}
	return p
}

// setRequest sets the fields that depend on the job's request.
func (p *predicted) setRequest(job namedJob, given learn.Prediction, t learn.Table) {
	p.TimeLimit = int(job.limit.Seconds())
	if now := t.InTime(given, job.limit); now != cmp.Or(given.Own, given.Profile) {
		p.Requests = now
	}
	if job.named {
		p.Named = cmp.Or(job.requested, "unknown")
	}
}

// setSource sets the fields that describe the source of the runs.
func (p *predicted) setSource(o repoOptions, cfg config.Config, r *repo.Repo) error {
	state, err := learn.StateOf(r)
	if err != nil {
		return err
	}
	p.SourceRuns = state.Runs
	if o.ownOnly(cfg) {
		p.Source = "slurmdbd, your own runs only"
		return nil
	}
	p.Source = cmp.Or(o.path, cfg.Repo)
	if !state.Synced.IsZero() {
		p.learning = state.String(time.Now())
		return nil
	}
	p.Source += ", which does not contain runs on other nodes (`caelum repo sync` has never read slurmdbd)"
	return nil
}

// levelNames describes, for each level, the runs on which a prediction at this level is based.
var levelNames = map[predict.Level]string{
	predict.ByArgs:  "of this key, whose memory follows a number in the arguments",
	predict.ByKey:   "of this key",
	predict.ByUser:  "of the same script by the same user",
	predict.BySite:  "of the same script by any user",
	predict.ByName:  "of other scripts with the same job name and user",
	predict.ByOwner: "of other scripts by the same user",
}

func printPrediction(w io.Writer, p predicted) error {
	printJob(w, p)
	if p.Own != "" {
		fmt.Fprintf(w, "an administrator's line in the decision table selects %s, regardless of earlier runs\n", p.Own)
	}
	if p.Level == predict.Unknown && p.noScript {
		fmt.Fprintln(w, "jobs without a script (srun, salloc) cannot be predicted, because their program is unknown")
	}
	if p.Level == predict.Unknown {
		printLarger(w, p)
		_, err := fmt.Fprintf(w, "no earlier run shows how much memory the job needs%s\n", p.withoutRuns())
		return err
	}
	printProfile(w, p)
	printLarger(w, p)
	printNeed(w, p)
	if p.Seconds > 0 {
		fmt.Fprintf(
			w,
			"expected run time %s, most likely between %s and %s\n",
			inSeconds(p.Seconds), inSeconds(p.Low), inSeconds(p.High),
		)
	}
	if len(p.On) > 1 {
		var all []string
		for _, t := range p.On {
			all = append(all, fmt.Sprintf("%s %s", t.Profile, inSeconds(t.Seconds)))
		}
		fmt.Fprintf(w, "expected run time on each profile with enough memory: %s\n", strings.Join(all, ", "))
		known := "an assumption, because no run shows the busy share"
		if p.BusyKnown {
			known = "from earlier runs"
		}
		fmt.Fprintf(w, "busy share: %d%% (%s)\n", p.Busy, known)
	}
	return printRuns(w, p.runs)
}

// withoutRuns returns the end of a sentence about a job without earlier runs: the profile that the job gets.
func (p predicted) withoutRuns() string {
	switch {
	case p.Own != "":
		return ""
	case p.Named != "":
		return ", so a job that names no profile gets the default profile" + parenthesized(p.Default)
	}
	return ", so it gets the default profile" + parenthesized(p.Default)
}

// printProfile prints the profile that follows from earlier runs.
func printProfile(w io.Writer, p predicted) {
	switch {
	case p.Profile != "" && p.Own != "":
		fmt.Fprintf(w, "without this line, earlier runs would select profile %s of %s\n", p.Profile, p.Model)
	case p.Profile != "":
		fmt.Fprintf(w, "profile %s of %s\n", p.Profile, p.Model)
	case !p.anyModel:
		fmt.Fprintln(w, "this host has no decision table; use --board to see the profile")
	default:
		fmt.Fprintln(w, "no profile has enough memory")
	}
}

// printNeed prints the memory that the job needs. If no run was complete, this is only a lower bound.
func printNeed(w io.Writer, p predicted) {
	if p.Used == 0 {
		fmt.Fprintf(w, "needs at least %.0f MiB, according to %s %s, none of them complete; the highest peak was "+
			"%.0f MiB\n", p.NeededMiB, plural(len(p.runs), "run"), levelNames[p.Level], p.HighestMiB)
	} else {
		fmt.Fprintf(w, "needs %.0f MiB, according to %d of %d runs %s; %.0f MiB without the safety margin\n",
			p.NeededMiB, p.Used, len(p.runs), levelNames[p.Level], p.HighestMiB)
	}
	if p.Why != "" {
		fmt.Fprintln(w, printable(p.Why))
	}
}

// printJob prints the job's keys, the source of the runs, and whether the prediction applies to the job itself.
func printJob(w io.Writer, p predicted) {
	fmt.Fprintf(w, "key %s", p.Key)
	if p.Fingerprint != "" {
		fmt.Fprintf(w, ", script fingerprint %s", p.Fingerprint)
	}
	if len(p.Args) > 0 {
		fmt.Fprintf(w, ", numbers in the arguments: %s", predict.FormatNumbers(p.Args))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "%s from %s\n", plural(p.SourceRuns, "run"), printable(p.Source))
	if p.learning != "" {
		fmt.Fprintln(w, p.learning)
	}
	if p.Named != "" {
		fmt.Fprintf(w, "the job named its profile (%s), which Caelum does not change; "+
			"the following applies to a job that names no profile\n", printable(p.Named))
	}
}

// printLarger prints the profile that the job requests because of its time limit.
func printLarger(w io.Writer, p predicted) {
	if p.Requests != "" {
		fmt.Fprintf(w, "requests the larger profile %s because of the time limit of %s\n", p.Requests,
			jobreport.Clock(p.TimeLimit))
	}
}

func tenths(s float64) float64 { return math.Round(10*s) / 10 }

func parenthesized(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func inSeconds(s float64) time.Duration { return time.Duration(math.Round(s)) * time.Second }
