package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// namedJob is the job that the command line specifies. For a job specified by --key or --script, only JobKeys and limit
// are known.
type namedJob struct {
	repo.JobKeys
	limit     time.Duration // the time limit; 0 if it is unknown or not set
	requested string        // the profile in the job's request
	insteadOf string        // the smaller profile that the job would have requested without its time limit
	named     bool          // true if the user chose the profile; Caelum does not change it in this case
}

// job returns the job that the command line specifies. With --key, it sets only JobKeys.Key; jobOfKey sets the other
// fields of JobKeys.
func (o predictOptions) job(ctx context.Context, args []string) (j namedJob, err error) {
	if j.limit, err = timeLimit(o.limit); err != nil {
		return j, usageError{err}
	}
	if len(args) == 1 && o.key == "" && o.script == "" {
		if o.limit != "" {
			return j, usageError{errors.New("--time applies only to --script and --key, because a submitted job " +
				"already has a time limit; omit --time")}
		}
		id, _, err := jobRef(args[0]) // all tasks of an array have the same key
		if err != nil {
			return j, err
		}
		return jobOf(ctx, slurm.New(slurm.Options{}), id)
	}
	j.JobKeys, err = o.jobKeys(args)
	return j, err
}

// timeLimit parses a time limit in minutes, or in the form [D-]HH:MM:SS. Like Slurm, it rounds seconds up to minutes.
func timeLimit(text string) (time.Duration, error) {
	if minutes, err := strconv.ParseUint(text, 10, 24); err == nil {
		return time.Duration(minutes) * time.Minute, nil
	}
	limit, err := slurm.ParseLimit(text)
	if err != nil || strings.Contains(text, "-") && strings.Count(text, ":") != 2 {
		return 0, fmt.Errorf("--time %.40q is not a time limit; specify minutes or [D-]HH:MM:SS", text)
	}
	return (limit + time.Minute - time.Second).Truncate(time.Minute), nil
}

// jobKeys returns the key, the script fingerprint and the user of the job described by --script. For --key, it returns
// only the key. args holds the script's arguments, whose numbers it returns, too.
func (o predictOptions) jobKeys(args []string) (repo.JobKeys, error) {
	switch {
	case (o.key == "") == (o.script == ""):
		return repo.JobKeys{}, errWhichJob
	case o.key != "":
		return repo.JobKeys{Key: o.key, Args: numbersOf(args)}, checkKey(o.key)
	}
	return o.keysOfScript(args)
}

var errWhichJob = usageError{errors.New("specify exactly one of a job id, --key and --script")}

// numbersOf returns the numbers in the arguments of a script.
func numbersOf(args []string) []float64 {
	return predict.ParseNumbers(strings.Join(predict.Numbers(args), ","))
}

// keysOfScript calculates the job key and the script fingerprint of the job described by --script, in the same way as
// job_submit.lua.
func (o predictOptions) keysOfScript(args []string) (repo.JobKeys, error) {
	script, err := os.ReadFile(o.script)
	if err != nil {
		return repo.JobKeys{}, err
	}
	uid, err := userID(o.user)
	if err != nil {
		return repo.JobKeys{}, err
	}
	if o.account == "" {
		return repo.JobKeys{}, usageError{
			errors.New("--account is missing; specify the account even if it is the user's default account, because " +
				"the job's key depends on the account"),
		}
	}
	if o.gpus < 1 || o.nodes < 1 || o.tasks < 0 || o.cpus < 0 {
		return repo.JobKeys{}, usageError{
			errors.New("--gpus and --nodes must be at least 1, and --ntasks and --cpus-per-task must be at least 0"),
		}
	}
	in := predict.KeyInput{
		UID:         uid,
		Account:     o.account,
		JobName:     o.jobName,
		Script:      string(script),
		Args:        args,
		GPUs:        o.gpus,
		Nodes:       o.nodes,
		Tasks:       o.tasks,
		CPUsPerTask: o.cpus,
	}
	if in.JobName == "" {
		in.JobName = filepath.Base(o.script)
	}
	return repo.JobKeys{
		Key: predict.Key(in), Fingerprint: predict.Fingerprint(in), Name: in.JobName, UID: uid, Args: numbersOf(args),
	}, nil
}

// jobOfKey returns the job key given by --key, the user that the key belongs to, and the script fingerprint of its
// newest run. Without numbers in the script's arguments, those of the newest run apply.
func (o predictOptions) jobOfKey(r *repo.Repo, numbers []float64) (repo.JobKeys, error) {
	uid, err := o.keyOwner(r, o.key)
	if err != nil {
		return repo.JobKeys{}, err
	}
	job := repo.JobKeys{Key: o.key, UID: uid, Args: numbers}
	runs, err := r.RunsOfKey(uid, o.key)
	if len(runs) > 0 {
		job.Fingerprint, job.Name = runs[len(runs)-1].Fingerprint, runs[len(runs)-1].Name
		if job.Args == nil {
			job.Args = runs[len(runs)-1].Args
		}
	}
	return job, err
}

// keyOwner returns the id of the user that the job key belongs to: the user given by --user or, without --user, the
// only user with runs of the key. If no user has runs of the key, it returns the caller's id; if several users do, it
// returns an error.
func (o predictOptions) keyOwner(r *repo.Repo, key string) (uint32, error) {
	if o.user != "" {
		return userID(o.user)
	}
	owners, err := r.Owners(key)
	switch {
	case err != nil:
		return 0, err
	case len(owners) > 1:
		return 0, usageError{fmt.Errorf("%d users have runs of the key %s; specify the user with --user", len(owners),
			key)}
	case len(owners) == 1:
		return owners[0], nil
	}
	return uint32(os.Getuid()), nil
}

// userID returns the id of the user with the given name or id. If name is empty, it returns the caller's id.
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

// jobOf returns the job with the given id. It reads the job from slurmctld or, if slurmctld no longer has a record of
// the job, from slurmdbd. From slurmdbd's record, it uses only AdminComment, the name and the user.
func jobOf(ctx context.Context, ctl *slurm.Client, id uint32) (namedJob, error) {
	j, err := ctl.Job(ctx, id)
	if errors.Is(err, slurm.ErrNoJob) {
		var records []slurm.Record
		if records, err = ctl.RecordsOf(ctx, slurm.AdminComment, id); err == nil {
			last := records[len(records)-1]
			j = slurm.Job{AdminComment: last.Comment, UID: last.UID}
			names, wrong := ctl.NamesOf(ctx, strconv.FormatUint(uint64(id), 10))
			warnOfNames(wrong)
			j.Name = names[last.Index]
		}
	}
	if err != nil {
		return namedJob{}, err
	}
	job := namedJob{
		JobKeys: repo.JobKeys{
			Key:         tags.Value(j.AdminComment, tags.Key),
			Fingerprint: tags.Value(j.AdminComment, tags.Fingerprint),
			Name:        j.Name,
			UID:         j.UID,
			Args:        predict.ParseNumbers(tags.Value(j.AdminComment, tags.Args)),
		},
		limit:     j.TimeLimit,
		requested: tags.Value(j.AdminComment, tags.Size),
		insteadOf: tags.Value(j.AdminComment, tags.InsteadOf),
	}
	if job.Key == "" {
		return job, fmt.Errorf(
			"job %d has no caelum:key= in AdminComment, because the job requested no GPU or bypassed job_submit.lua",
			id,
		)
	}
	if job.named = job.requested == ""; job.named {
		var all []string
		for _, g := range j.SlicesPerNode() {
			all = append(all, g.Type)
		}
		job.requested = strings.Join(all, ", ")
	}
	return job, nil
}
