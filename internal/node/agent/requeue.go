package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"caelum/internal/core/offer"
	"caelum/internal/core/tags"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/metrics"
	"caelum/internal/slurm"
)

// maxRequeues limits the number of times that the agent requeues a job because its slices are not available. After the
// last requeue, the job stays held, and its admin_comment lists the missing slices. As long as processes of finished
// jobs are still using slices, the agent does not count requeues, because these processes could belong to another user.
const maxRequeues = 3

// requeueOrRefuse handles a job whose slices are not available. A batch job that can be requeued is requeued and held
// with the Held tag, so that an agent releases it when its slices are offered. For all other jobs, requeueOrRefuse
// writes the reason to the lease. At the last requeue, it writes the missing slices and the node to the job's
// admin_comment.
func (a *Agent) requeueOrRefuse(
	ctx context.Context,
	job slurm.Job,
	lease api.Lease,
	reason, missing string,
) (api.Lease, error) {
	// If the agent cannot write to the ledger, the prolog must repeat its call, and the agent must not requeue the job.
	if err := a.ledger.Writable(); err != nil {
		return lease, err
	}
	if !job.Batch || !job.Requeue {
		return a.refuse(lease, reason+"; submit the job again, if possible with sbatch --requeue")
	}
	times := requeues(job.AdminComment)
	comment := job.AdminComment
	uncounted := a.hasLeftovers()
	if !uncounted {
		comment = tags.Replace(comment, requeuedTag(times), requeuedTag(times+1))
	}
	if uncounted || times < maxRequeues {
		comment = tags.Replace(comment, tags.Released, tags.Held)
	} else {
		// The job leaves the node before `caelum job` can show the reason. `caelum explain` shows the tag's contents.
		comment = tags.Set(comment, tags.NoRoom, missing+"@"+a.cfg.Node)
		reason += fmt.Sprintf("; held after %d requeues; ask an administrator to check `caelum status` on %s",
			times, a.cfg.Node)
	}
	if err := a.ctl.SetAdminComment(ctx, job.ID, comment); err != nil {
		return lease, api.NotNow(err.Error())
	}
	failpoint.Hit(failpoint.RequeueTagged)
	if err := a.ctl.RequeueHold(ctx, job.ID); err != nil {
		return lease, api.NotNow(err.Error())
	}
	failpoint.Hit(failpoint.Requeued)
	a.metrics.Failed(metrics.Requeue)
	return a.grantNone(lease, reason+"; the job was requeued")
}

// list formats slices as PROFILE:COUNT,...
func list(wants []offer.Want) string {
	var all []string
	for _, w := range wants {
		all = append(all, fmt.Sprintf("%s:%d", w.Profile, w.Count))
	}
	return strings.Join(all, ",")
}

// requeuedTag returns the tag for a job that the agent has requeued the given number of times, or an empty string for
// 0.
func requeuedTag(times int) string {
	if times == 0 {
		return ""
	}
	return tags.Requeued + strconv.Itoa(times)
}

// requeues returns the number of requeues that a job's admin_comment records.
func requeues(comment string) int {
	n, err := strconv.Atoi(tags.Value(comment, tags.Requeued))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
