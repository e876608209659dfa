package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// observedRun identifies a run of a job.
type observedRun struct {
	job     uint32
	restart int
}

// openedRun is a run on the node that has not been recorded yet.
type openedRun struct {
	observation
	job    slurm.Job // zero until Poll has read the job
	keyed  bool      // true if the key and the script fingerprint are final
	missed int       // the number of polls since slurmctld last listed the job
	seen   time.Time // the time of the last poll in which slurmctld listed the job
	busy   float64   // the sum of the utilisation values of GPUs
	busies int       // the number of these values
}

func (r *openedRun) usageOn(d *observedDevice) *sliceUsage {
	for _, u := range r.Slices {
		if u.UUID == d.in.UUID {
			return u
		}
	}
	return nil
}

func (r *openedRun) addBusy(share float64) {
	if share >= 0 {
		r.busy, r.busies = r.busy+share, r.busies+1
	}
}

const (
	// maxMissed is the number of polls in which slurmctld may omit a job before its run is recorded. While a job is
	// completing on other nodes only, slurmctld does not list it on this node.
	maxMissed = 8
	// maxScripts limits the scripts that a poll reads. Each of them is a request to slurmctld.
	maxScripts = 32
	// maxScript is the number of bytes of a script that are searched for #SBATCH lines. The key depends on fewer.
	maxScript = 64 << 10
)

func errNoDevice(gpus []gpu.GPU) error {
	for _, g := range gpus {
		if g.Problem != "" {
			return fmt.Errorf("GPU %d cannot be observed: %s", g.Index, g.Problem)
		}
	}
	return errors.New("this node has no GPU; run caelumd observe on a GPU node")
}

// Poll reads the node's jobs from slurmctld and records the runs that have ended.
func (o *Observer) Poll(ctx context.Context) {
	listed, err := o.Slurm.AllOn(ctx, o.Node)
	if err != nil {
		if ctx.Err() == nil {
			o.Log.WithError(err).Warn("couldn't read the node's jobs; trying again")
		}
		return
	}
	var ended []*openedRun
	o.mu.Lock()
	done := map[observedRun]bool{}
	for _, r := range o.open {
		r.missed++
	}
	for _, j := range listed {
		id := observedRun{j.ID, j.Restarts}
		r := o.open[j.ID]
		if r != nil && r.job.ID != 0 && r.job.Restarts != j.Restarts { // the earlier run was requeued
			ended = append(ended, r)
			r = nil
		}
		switch {
		case o.done[id] || r == nil && !j.Present() && j.End.Before(o.began):
			done[id] = true
			delete(o.open, j.ID)
			continue
		case j.Start.IsZero() || r == nil && j.GPUsPerNode() == 0:
			continue
		case r == nil:
			r = &openedRun{}
			o.open[j.ID] = r
		}
		r.job, r.missed, r.seen, r.Began = j, 0, o.Now(), o.Clock()-o.Now().Sub(j.Start)
		if !j.Present() {
			ended, done[id] = append(ended, r), true
			delete(o.open, j.ID)
		}
	}
	for id, r := range o.open {
		if r.missed >= maxMissed {
			delete(o.open, id)
			if r.job.ID != 0 {
				ended = append(ended, r)
			}
		}
	}
	o.done = done
	all := slices.Clone(ended)
	for _, r := range o.open {
		all = append(all, r)
	}
	o.mu.Unlock()
	o.addKeys(ctx, all)
	for _, r := range ended {
		if err := o.Record(o.observed(r)); err != nil {
			o.Log.WithError(err).WithField("job", r.job.ID).Error("couldn't record a run")
		}
	}
}

// addKeys computes the keys of runs. The runs that have ended must come first, because slurmctld removes their scripts
// soon.
func (o *Observer) addKeys(ctx context.Context, runs []*openedRun) {
	left := maxScripts
	for _, r := range runs {
		j := r.job
		if r.keyed || j.ID == 0 || j.GPUsPerNode() == 0 {
			continue
		}
		script, err := "", error(nil)
		if j.Batch {
			if left--; left < 0 {
				return
			}
			if script, err = o.Slurm.Script(ctx, j.ID); errors.Is(err, slurm.ErrUnreachable) {
				return
			}
		}
		if r.keyed = true; err == nil { // otherwise, this user may not read the script
			in := keyInput(j, script)
			r.Run.Key, r.Run.Fingerprint = predict.Key(in), predict.Fingerprint(in)
		}
	}
}

var (
	ntasks = regexp.MustCompile(`(?m)^#SBATCH(?:[ \t].*)?[ \t](?:-n[ \t]*[0-9]|--ntasks)`)
	cpus   = regexp.MustCompile(`(?m)^#SBATCH(?:[ \t].*)?[ \t](?:-c[ \t]*|--cpus-per-task[= \t][ \t]*)([0-9]+)`)
)

// keyInput returns the input of a job's key. slurmctld's record shows one task per node, and one CPU per task, both for
// a job that requests them and for one that does not, so the #SBATCH lines decide. If such an option was given on the
// command line, the key differs from that of job_submit.lua; for CPUs, the script fingerprint is still the same. It is
// also the same if the script has arguments, which are only in the key.
func keyInput(j slurm.Job, script string) predict.KeyInput {
	script = script[:min(len(script), maxScript)]
	in := predict.KeyInput{
		UID: j.UID, Account: j.Account, JobName: j.Name, Script: script,
		GPUs: j.GPUsPerNode(), Nodes: max(j.NumNodes, 1), Tasks: j.Tasks,
	}
	if j.Tasks == j.NumNodes && !ntasks.MatchString(script) {
		in.Tasks = 0
	}
	if m := cpus.FindStringSubmatch(script); m != nil {
		in.CPUsPerTask, _ = strconv.Atoi(m[1])
	}
	return in
}

// observed returns the record of a run. If the job started before the Observer, its usage is unknown.
func (o *Observer) observed(r *openedRun) repo.Observed {
	j, end, state := r.job, r.job.End, r.job.State
	if j.Present() { // slurmctld no longer lists the run
		end, state = r.seen, ""
	}
	if j.Start.Before(o.began) {
		r.Slices = nil
	}
	gpus := min(max(j.GPUsPerNode(), 0), repo.MaxCount) // a user may request any number
	run := predict.Run{GPUType: o.first.gpuType, Profile: o.first.in.Profile, Slices: max(gpus, 1), Util: -1}
	if len(r.Slices) > 0 {
		run = r.run(o.Clock())
	}
	run.Job, run.Restart, run.Node, run.UID = j.ID, j.Restarts, o.Node, j.UID
	run.Key, run.Fingerprint = r.Run.Key, r.Run.Fingerprint
	run.User, run.Account, run.Name, run.State = j.User, j.Account, j.Name, state
	run.Start, run.Seconds = j.Start.Unix(), max(end.Sub(j.Start), 0).Seconds()
	line := repo.Observed{
		Line: repo.Line(run), Partition: j.Partition,
		Submit: min(max(j.Submit.Unix(), j.Eligible.Unix(), 0), run.Start), Limit: max(int64(j.TimeLimit.Seconds()), 0),
		Nodes: min(max(j.NumNodes, 0), repo.MaxCount), GPUs: gpus, GPUUtil: -1,
	}
	if r.busies > 0 && len(r.Slices) > 0 {
		line.GPUUtil = r.busy / float64(r.busies)
	}
	for _, u := range r.Slices {
		line.Devices = append(line.Devices, repo.ObservedDevice{GPU: u.GPU, UUID: u.UUID, Profile: u.Profile,
			PeakMiB: u.PeakMiB})
	}
	slices.SortFunc(line.Devices, func(a, b repo.ObservedDevice) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.UUID, b.UUID))
	})
	return line
}
