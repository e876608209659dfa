package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"caelum/internal/place"
	"caelum/internal/slurm"
)

// Verdict is the reason why a job waits, in one word. It also covers jobs that do not wait.
type Verdict string

const (
	Started     Verdict = "started"      // the job has its slices, or they are being carved
	Over        Verdict = "over"         // the job has ended or is ending
	NoSlice     Verdict = "no-slice"     // the job requests no slice
	Unreadable  Verdict = "unreadable"   // the job's request cannot be read
	NotEligible Verdict = "not-eligible" // slurmctld would not start the job even on an empty cluster
	Nowhere     Verdict = "nowhere"      // no eligible node, even if all slices were free
	OnOffer     Verdict = "on-offer"     // slurmctld can start the job when it next goes through the queue
	Planned     Verdict = "planned"      // the job's slices will shortly be on offer
	First       Verdict = "first"        // the first job that has to wait: room is reserved for it
	Behind      Verdict = "behind"       // there is room, but an earlier job gets it
	Lacks       Verdict = "lacks"        // there is room, but something else keeps the job from starting there
	NoRoom      Verdict = "no-room"      // there is no room
)

// Explanation is the answer of Explain about one job.
type Explanation struct {
	Job     uint32  `json:"job"`
	State   string  `json:"state"`
	Reason  string  `json:"reason"`          // the reason that slurmctld shows
	Sized   string  `json:"sized,omitempty"` // the profile that Caelum chose, if the job named none
	Verdict Verdict `json:"verdict"`
	// Text is the explanation as a sentence for users.
	Text string `json:"text"`
	// Place is the position of the job among the Of jobs that wait for slices; 0: the job is not among them.
	Place int `json:"place,omitempty"`
	Of    int `json:"of,omitempty"`
	// On are the nodes on which the job's slices are, are planned or are reserved.
	On []string `json:"on,omitempty"`
	// At is when the job can start if the jobs in its way end as expected, in Unix seconds; 0: unknown.
	At int64 `json:"at,omitempty"`
	// Before is the id of the waiting job that gets the room first.
	Before uint32 `json:"before,omitempty"`
	// BackUntil is until when the job comes after all other jobs, in Unix seconds, because slurmctld did not start it
	// while its slices were on offer. 0: it does not come after them, or no agent has published it.
	BackUntil int64 `json:"back_until,omitempty"`
	// Held is true if job_submit.lua or an agent holds the job. An agent then releases it.
	Held bool `json:"held,omitempty"`
}

// set sets the verdict and the text. It returns true, for callers that report whether they have an explanation.
func (e *Explanation) set(v Verdict, format string, args ...any) bool {
	e.Verdict, e.Text = v, fmt.Sprintf(format, args...)
	return true
}

// Explain returns why the job with this id waits, according to the plan that the agents make from the same snapshot.
// The error is slurm.ErrNoJob if the snapshot has no such job.
func Explain(snapshot Snapshot, policy place.Policy, id uint32) (Explanation, error) {
	k := slices.IndexFunc(snapshot.Queue.All, func(j slurm.Job) bool { return j.ID == id })
	if k < 0 {
		return Explanation{}, fmt.Errorf("job %d: %w", id, slurm.ErrNoJob)
	}
	j := snapshot.Queue.All[k]
	e := Explanation{Job: id, State: j.State, Reason: j.Reason, Sized: slurm.TagValue(j.AdminComment, slurm.TagSized)}
	if e.explainState(j) {
		return e, nil
	}
	at := slices.IndexFunc(snapshot.Queue.Waiting, func(w slurm.Waiting) bool { return w.ID == id })
	if at < 0 { // the job was pending when its record was read, but not when the queue was read
		e.set(Started, "the job is starting, or has been cancelled")
		return e, nil
	}
	w := snapshot.Queue.Waiting[at]
	e.Held = w.HeldByTag()
	if !e.explainNotEligible(snapshot, w) {
		e.explainByPlan(snapshot, policy, w, list(j.SlicesPerNode()))
	}
	return e, nil
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
