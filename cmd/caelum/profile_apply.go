package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// applyChoice stores DynaP's choice in the repository under the measured script's job key. Because the user who wrote
// the measurements file could have tampered with it, applyChoice takes the job key and its user from the repository,
// which must contain a completed run of the measured job on the chosen profile.
func (o profileJobOptions) applyChoice(w io.Writer, j evaluation) error {
	if len(j.Verdicts) != 1 {
		return usageError{errors.New("--apply requires exactly one batch size; specify it with --batch")}
	}
	v := j.Verdicts[0]
	at := slices.IndexFunc(j.Runs, func(m result) bool {
		return m.Profile == v.Choice && m.Batch == v.Batch && m.completed() && m.Job != 0
	})
	if v.Choice == "" || at < 0 {
		return fmt.Errorf("DynaP cannot choose a profile from the measurements in %s; measure the script with "+
			"--batches and --steps", o.from)
	}
	r, _, err := o.open(true)
	if err != nil {
		return err
	}
	defer r.Close()
	job := j.Runs[at].Job
	runs, err := r.Job(job)
	if err != nil {
		return err
	}
	k := slices.IndexFunc(runs, func(n predict.Run) bool {
		return n.Profile == v.Choice && n.State == "COMPLETED" && n.Key != "" && n.Fingerprint != ""
	})
	if k < 0 {
		return fmt.Errorf("the repository has no completed run of job %d on %s; run `caelum repo sync` first",
			job, printable(v.Choice))
	}
	of := repo.JobKeys{Key: runs[k].Key, UID: runs[k].UID}
	m := learn.Measured{Profile: v.Choice, Batch: v.Batch, Job: job, At: time.Now().Unix()}
	if err := learn.SetMeasured(r, of, m); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "stored %s as the profile for key %s of user %s (batch %d); to update the decision "+
		"table, run `caelum repo decisions`\n",
		printable(v.Choice), of.Key, printable(runs[k].User), v.Batch)
	return err
}
