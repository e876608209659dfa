package agent

import (
	"errors"
	"slices"

	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// limitedBySoftMig returns what limits the memory of jobs with fractions, if it is SoftMig.
func (a *Agent) limitedBySoftMig() (s gpu.SoftMig, ok bool) {
	if a.fractions != nil {
		s, ok = a.fractions.Limits.(gpu.SoftMig)
	}
	return s, ok
}

// unfitForSoftMig returns the reason why SoftMig cannot limit the memory of a job with a fraction. It has one limit for
// all GPUs of a job, and finds the limit by SLURM_JOB_ID, which is the ID of the first component in all components of a
// het job (slurmstepd, exec_task).
func (a *Agent) unfitForSoftMig(job slurm.Job, held []*state.Instance) error {
	_, ok := a.limitedBySoftMig()
	switch fraction := func(in *state.Instance) bool { return in.GI < gpu.FullGI }; {
	case !ok || !slices.ContainsFunc(held, fraction):
		return nil
	case job.HetJob != 0:
		return errors.New("SoftMig cannot limit the memory of het jobs; request whole GPUs or MIG slices")
	case len(held) > 1:
		return errors.New("SoftMig has one memory limit for all GPUs of a job; request one GPU per node, or whole GPUs")
	}
	return nil
}

// startSoftMig logs that limits are cooperative, and removes files that an earlier agent left behind. It keeps the
// files of jobs whose cgroups exist.
func (a *Agent) startSoftMig() {
	s, ok := a.limitedBySoftMig()
	if !ok || a.groups == nil {
		return
	}
	a.log.Warn("fraction_limits is softmig: programs that do not load SoftMig's library can use more memory than " +
		"their job's fraction has, until the job is ended after two samples")
	made, err := a.groups.Made()
	if err == nil {
		err = s.RemoveOthers(made)
	}
	if err != nil {
		a.log.WithError(err).Warn("couldn't remove the memory limits of jobs that have ended")
	}
}
