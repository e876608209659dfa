package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"caelum/internal/api"
	"caelum/internal/failpoint"
	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// maxRequeues is how often a job is sent back because its slice could not be had; after that it is held with the
// reason. While processes of ended jobs keep slices in use, the job is sent back uncounted: another user could have
// started these processes.
const maxRequeues = 3

// requeueOrRefuse deals with a job whose slices cannot be had just now, for a reason. A batch job that allows it goes
// back to the queue, held with the mark by which an agent releases it once its slices are on offer; any other job is
// told. What could not be had is noted in the job when it is given up.
func (a *Agent) requeueOrRefuse(
	ctx context.Context,
	job slurm.Job,
	lease api.Lease,
	reason, missing string,
) (api.Lease, error) {
	// A ledger that cannot be written keeps slices from being cut as well as a lack of room does, and is no reason to
	// send jobs away.
	if err := a.ledger.Writable(); err != nil {
		return lease, err
	}
	if !job.Batch || !job.Requeue {
		return a.refuse(lease, reason+"; submit again, or as a batch job that may be requeued (--requeue)")
	}
	times := requeues(job.AdminComment)
	comment := job.AdminComment
	uncounted := a.hasLeftovers()
	if !uncounted {
		comment = replaceTag(comment, requeuedTag(times), requeuedTag(times+1))
	}
	if uncounted || times < maxRequeues {
		comment = replaceTag(comment, slurm.TagReleased, slurm.TagHeld)
	} else {
		// The job is gone from here before anything could show the reason, so it stands where `scontrol show job` does.
		comment = replaceTag(comment, "", tagNoRoom+missing+"@"+a.cfg.Node)
		reason += fmt.Sprintf("; tried %d times, held: ask an administrator to look at `caelum status` on %s", times, a.cfg.Node)
	}
	if err := a.ctl.SetAdminComment(ctx, job.ID, comment); err != nil {
		return lease, api.NotNow(err.Error())
	}
	failpoint.Hit(failpoint.RequeueTagged)
	if err := a.ctl.RequeueHold(ctx, job.ID); err != nil {
		return lease, api.NotNow(err.Error())
	}
	failpoint.Hit(failpoint.Requeued)
	return a.refuse(lease, reason+"; the job was requeued")
}

// assignProfile gives a size to the jobs that were sent back without one.
func (a *Agent) assignProfile(ctx context.Context, waiting []slurm.Waiting) {
	for i := range waiting {
		w := &waiting[i]
		if !w.Releasable(a.now()) || len(only(w.PerNode, "mig")) > 0 {
			continue
		}
		n := max(w.GPUsPerNode(), 1)
		gres := append(only(w.PerNode, "gpu"), slurm.GRES{Name: "mig", Type: a.sizeOf(w.Job), Count: n})
		if err := a.ctl.SetJobGRES(ctx, w.ID, gres); err != nil {
			a.log.WithError(err).WithField("job", w.ID).Warn("couldn't give a requeued job its size")
			continue
		}
		a.changes.Add(1)
		w.PerNode = gres
	}
}

func list(wants []offer.Want) string {
	var all []string
	for _, w := range wants {
		all = append(all, fmt.Sprintf("%s:%d", w.Profile, w.Count))
	}
	return strings.Join(all, ",")
}

func requeuedTag(times int) string {
	if times == 0 {
		return ""
	}
	return tagRequeued + strconv.Itoa(times)
}

func requeues(comment string) int {
	n, err := strconv.Atoi(slurm.TagValue(comment, tagRequeued))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
