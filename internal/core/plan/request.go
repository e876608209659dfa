package plan

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// request holds a Planner's results for all waiting jobs with equal requests.
type request struct {
	round    uint64 // the last round in which a job had the request
	verdicts verdicts
	nodes    nodeSets
	built    uint64 // the round in which nodes and feasible were computed, or 0
	// temporary is true if nodes depends on data other than the request and the records of the nodes.
	temporary bool
	feasible  bool // see View.feasible
}

// requestKey identifies equal requests. paused is true if reservations are suspended for the jobs' users.
type requestKey struct {
	hash   [sha256.Size]byte
	paused bool
}

// nodeSets holds the fields of an offer.Job that findNodes sets.
type nodeSets struct {
	alternatives               []string
	eligible, deferred, closed []int
	readyAt, freedAt           map[int]float64
}

// request returns the planner's results for jobs with this key.
func (p *Planner) request(key requestKey) *request {
	r := p.requests[key]
	if r == nil {
		r = &request{}
		p.requests[key] = r
	}
	return r
}

// find sets the members on which a job can run, recomputing them only if the nodes have changed.
func (r *request) find(v *View, job *offer.Job, w *slurm.Waiting) {
	p := v.planner
	r.round = p.round
	current := r.built == p.round || !r.temporary && r.built >= p.changed && r.built > 0
	if !current {
		job.Wants[0].Alternatives, job.EligibleNodes, job.DeferredNodes, job.NoOfferNodes = nil, nil, nil, nil
		job.Wants[0].Sizes, job.ReadyAt, job.FreedAt = nil, nil, nil
		r.temporary = v.findNodes(job, w, &r.verdicts)
		r.nodes = nodeSets{job.Wants[0].Alternatives, p.sets.of(job.EligibleNodes), p.sets.of(job.DeferredNodes),
			p.sets.of(job.NoOfferNodes), job.ReadyAt, job.FreedAt}
		r.built, r.feasible = p.round, v.feasible([]*offer.Job{job})
	}
	job.Wants[0].Alternatives = r.nodes.alternatives
	job.EligibleNodes, job.DeferredNodes, job.NoOfferNodes = r.nodes.eligible, r.nodes.deferred, r.nodes.closed
	job.ReadyAt, job.FreedAt = r.nodes.readyAt, r.nodes.freedAt
}

// requestHash returns a hash that is equal for two jobs only if findNodes finds the same nodes for both, provided that
// reservations are suspended for the users of both jobs or for neither user. It covers every field of the job that
// findNodes uses. ok is false if JSON cannot represent the job.
func requestHash(job *offer.Job, w slurm.Waiting) (hash [sha256.Size]byte, ok bool) {
	// Some of the strings are chosen by users. JSON quotes them, so the text is unambiguous.
	all, err := json.Marshal([]any{tags.Sized(*w.Job), job.Nodes, job.Wants[0].Profile, job.Wants[0].Needed(), bare(w)})
	return sha256.Sum256(all), err == nil
}

// bare returns the job without the fields that findNodes does not use. It uses LastSchedEval only if the reason is
// Resources, and AdminComment only to determine whether Caelum chose the job's profile and which profile the job needs.
func bare(w slurm.Waiting) slurm.Waiting {
	w = w.Clone()
	w.ID, w.ArrayJob, w.ArrayTask, w.Elements, w.HetJobs = 0, 0, "", 0, nil
	w.Name, w.User, w.Account, w.QOS, w.UID = "", "", "", "", 0
	w.Priority, w.Nice, w.Restarts, w.TimeLimit = 0, 0, 0, 0
	w.Submit, w.Eligible, w.Start, w.End = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if w.Reason != "Resources" {
		w.LastSchedEval = time.Time{}
	}
	w.Deadline, w.TimeMin = time.Time{}, 0
	w.AdminComment, w.Comment = "", ""
	return w
}
