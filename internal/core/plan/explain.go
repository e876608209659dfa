package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Verdict is a short code for the reason why a job is waiting, or for the state of a job that is not waiting.
type Verdict string

const (
	Started     Verdict = "started"      // slurmctld has started the job
	Over        Verdict = "over"         // the job has ended or is ending
	NoSlice     Verdict = "no-slice"     // the job does not request slices
	Unreadable  Verdict = "unreadable"   // its request cannot be parsed
	NotEligible Verdict = "not-eligible" // slurmctld would not start it even on an empty cluster
	Nowhere     Verdict = "nowhere"      // no node would be eligible even if all slices were free
	OnOffer     Verdict = "on-offer"     // slurmctld can start it, at the latest when no job is ending on the node
	Planned     Verdict = "planned"      // its slices are planned, but no agent offers them yet
	First       Verdict = "first"        // it is the first job that has to wait, and slices are reserved for it
	Behind      Verdict = "behind"       // its slices are free, but will be assigned to an earlier job
	Lacks       Verdict = "lacks"        // its slices are free, but on nodes where it lacks other resources
	NoRoom      Verdict = "no-room"      // the job's slices are not free
	OverQuota   Verdict = "over-quota"   // too many GPUs would be full (whole_share)
)

// Explanation describes why a job is waiting or, if it is not waiting, what state it is in.
type Explanation struct {
	Job uint32 `json:"job"`
	// Ref is the job's id in squeue's form: 12, 12_3, 12_[4-9] or 12+1.
	Ref    string `json:"ref"`
	State  string `json:"state"`
	Reason string `json:"reason"`          // slurmctld's reason why the job is pending
	Sized  string `json:"sized,omitempty"` // the profile that Caelum chose, if the user did not name one
	// By names what determined Sized (tags.By), or is empty if an earlier release chose it.
	By string `json:"by,omitempty"`
	// InsteadOf is the smaller profile that the job would request without its time limit, or empty if the limit makes
	// no difference. TimeLimit is that limit in seconds, or 0 if the job has none.
	InsteadOf string `json:"instead_of,omitempty"`
	TimeLimit int    `json:"time_limit,omitempty"`
	// Grown lists the job's growths, oldest first. After a growth, Sized is the resulting profile.
	Grown   []predict.Growth `json:"grown,omitempty"`
	Verdict Verdict          `json:"verdict"`
	// Text is the explanation in words, for users.
	Text string `json:"text"`
	// Place is the job's position among the jobs that are waiting for slices, or 0 if the job is not one of them. Of is
	// the number of these jobs.
	Place int `json:"place,omitempty"`
	Of    int `json:"of,omitempty"`
	// Larger is the profile of the slice that the job holds or is waiting for, if this profile is larger than the
	// requested one, and empty otherwise. RunTime is the expected run time on that slice, in seconds, or 0 if unknown.
	Larger  string  `json:"larger,omitempty"`
	RunTime float64 `json:"run_time,omitempty"`
	// On lists the nodes on which the job's slices exist, are planned or are reserved.
	On []string `json:"on,omitempty"`
	// At is the time, in Unix seconds, at which the job can start if the jobs on its slices end as expected, or 0 if
	// unknown.
	At int64 `json:"at,omitempty"`
	// Before is the id of the waiting job to which the free GPU units are assigned first.
	Before uint32 `json:"before,omitempty"`
	// BackUntil is the time, in Unix seconds, until which the agents plan the job after all others, because slurmctld
	// did not start it while its slices were offered. It is 0 if the job keeps its position, or if no agent has
	// published the time.
	BackUntil int64 `json:"back_until,omitempty"`
	// Deadline is the job's deadline, and LatestStart is the latest time at which slurmctld would start the job. Both
	// are in Unix seconds, or 0 if the job has no deadline. Misses is the reason why the job is not expected to meet
	// its deadline, or empty.
	Deadline    int64  `json:"deadline,omitempty"`
	LatestStart int64  `json:"latest_start,omitempty"`
	Misses      string `json:"misses_deadline,omitempty"`
	// Held is true if job_submit.lua or an agent holds the job, and an agent will release it as soon as its slices are
	// on offer. It is false if the job cannot start on any node.
	Held bool `json:"held,omitempty"`
	// PreemptedBy is the id of the job for which the watcher is stopping this job or has stopped its last run, or 0.
	PreemptedBy uint32 `json:"preempted_by,omitempty"`
	// Preempts contains the ids of the running jobs that the watcher is stopping for the job.
	Preempts []uint32 `json:"preempts,omitempty"`
	// MovedFor is the id of the job for which the watcher is moving this job or has moved its last run, or 0.
	MovedFor uint32 `json:"moved_for,omitempty"`
	// Moves contains the ids of the running jobs that the watcher is moving for the job.
	Moves []uint32 `json:"moves,omitempty"`
}

// set sets the verdict and the text. It always returns true, so that a caller can end with `return e.set(...)` to
// report that an explanation applies.
func (e *Explanation) set(v Verdict, format string, args ...any) bool {
	e.Verdict, e.Text = v, fmt.Sprintf(format, args...)
	return true
}

// Explain returns the reason why the job with the given id is waiting, according to the plan that the agents make from
// an identical snapshot. It returns slurm.ErrNoJob if the job is not in the snapshot.
func Explain(snapshot Snapshot, settings Settings, id uint32) (e Explanation, err error) {
	k := slices.IndexFunc(snapshot.Queue.All, func(j slurm.Job) bool { return j.ID == id })
	if k < 0 {
		return Explanation{}, fmt.Errorf("job %d: %w", id, slurm.ErrNoJob)
	}
	j := snapshot.Queue.All[k]
	e = Explanation{
		Job: id, Ref: ref(j), State: j.State, Reason: j.Reason, Sized: tags.Value(j.AdminComment, tags.Size),
		By:        tags.Value(j.AdminComment, tags.By),
		InsteadOf: tags.Value(j.AdminComment, tags.InsteadOf), TimeLimit: int(j.TimeLimit.Seconds()),
		Grown: tags.Growths(j),
	}
	defer func() { e.addPreemption(snapshot, j) }()
	if e.explainState(j) {
		return e, nil
	}
	at := slices.IndexFunc(snapshot.Queue.Waiting, func(w slurm.Waiting) bool { return w.ID == id })
	if at < 0 { // the job was pending when its record was read, but not when the queue was read
		e.set(Started, "the job is starting, or the job has been cancelled")
		return e, nil
	}
	w := snapshot.Queue.Waiting[at]
	e.Held = eligible.HeldByTag(w)
	if !e.explainNotEligible(snapshot, w) {
		e.explainByPlan(snapshot, settings, w, needed(j))
	}
	return e, nil
}

// ref returns the job's id in squeue's form. The ids of a het job's components are consecutive.
func ref(j slurm.Job) string {
	switch {
	case j.HetJob != 0 && j.ID >= j.HetJob:
		return fmt.Sprintf("%d+%d", j.HetJob, j.ID-j.HetJob)
	case j.ArrayJob != 0 && strings.ContainsAny(j.ArrayTask, ",-"):
		return fmt.Sprintf("%d_[%s]", j.ArrayJob, j.ArrayTask)
	case j.ArrayJob != 0:
		return fmt.Sprintf("%d_%s", j.ArrayJob, j.ArrayTask)
	}
	return fmt.Sprint(j.ID)
}

// needed returns the slices that a job needs on each node.
func needed(j slurm.Job) string {
	gres := j.SlicesPerNode()
	if grown := tags.Needed(j); grown != "" {
		gres[0].Type = grown
	}
	return list(gres)
}

func list(gres slurm.GRESList) string {
	var all []string
	for _, g := range gres {
		text := g.Type
		if g.Count > 1 {
			text += fmt.Sprintf(" x%d", g.Count)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func clock(at int64) string {
	return time.Unix(at, 0).Format(time.DateTime)
}
