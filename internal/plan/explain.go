package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"caelum/internal/offer"
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

// Explain returns why the job with this id waits, according to the plan that the agents make from the same snapshot.
// The error is slurm.ErrNoJob if the snapshot has no such job.
func Explain(snapshot Snapshot, policy place.Policy, id uint32) (Explanation, error) {
	k := slices.IndexFunc(snapshot.Queue.All, func(j slurm.Job) bool { return j.ID == id })
	if k < 0 {
		return Explanation{}, fmt.Errorf("job %d: %w", id, slurm.ErrNoJob)
	}
	j := snapshot.Queue.All[k]
	e := Explanation{Job: id, State: j.State, Reason: j.Reason, Sized: slurm.TagValue(j.AdminComment, slurm.TagSized)}
	wants := list(j.SlicesPerNode())
	explained := func(v Verdict, format string, args ...any) (Explanation, error) {
		e.Verdict, e.Text = v, fmt.Sprintf(format, args...)
		return e, nil
	}
	switch {
	case j.Holds() && wants == "":
		e.On = j.Nodes
		return explained(
			Started,
			"the job has started on %s; it requested no slice of a known size",
			strings.Join(j.Nodes, ", "),
		)
	case j.Holds():
		e.On = j.Nodes
		return explained(
			Started,
			"the job has started on %s and has %s there, as Slurm counts it; "+
				"`caelum job %d` on the node shows its slices",
			strings.Join(j.Nodes, ", "),
			wants,
			id,
		)
	case j.State != "PENDING":
		return explained(Over, "the job has ended or is ending: its state is %s", j.State)
	}
	at := slices.IndexFunc(snapshot.Queue.Waiting, func(w slurm.Waiting) bool { return w.ID == id })
	if at < 0 { // the job was pending when its record was read, but not when the queue was read
		return explained(Started, "the job is starting, or has been cancelled")
	}
	w := snapshot.Queue.Waiting[at]
	e.Held = w.HeldByTag()
	if w.HetJob != 0 {
		if ended := snapshot.hetJobs()[w.HetJob].ended; len(ended) > 0 {
			e.Held = false
			return explained(
				NotEligible,
				"the job can never start: slurmctld starts the components of het job %d together, and %s ended; "+
					"cancel the het job with `scancel %d` and submit it again",
				w.HetJob,
				components(ended),
				w.HetJob,
			)
		}
	}
	switch {
	case w.Problem != "":
		return explained(Unreadable, "the job's request cannot be read: %s", w.Problem)
	case e.Held && len(Job(w).Wants) == 0:
		return explained(
			NotEligible,
			"the job named no profile, and no slice was available when it started: "+
				"an agent assigns a profile and releases the job%s",
			notBefore(w, snapshot.At),
		)
	case len(Job(w).Wants) == 0 && w.HetJob != 0:
		return explained(
			NoSlice,
			"the job requests no slice of a known size, but all components of het job %d start together, "+
				"and another component may wait for a slice",
			w.HetJob,
		)
	case len(Job(w).Wants) == 0:
		return explained(NoSlice, "the job requests no slice of a known size, so it does not wait for a slice")
	case e.Held && held(snapshot, w) != nil:
		o := held(snapshot, w)
		return explained(
			NotEligible,
			"Caelum holds the job because it starts together with job %d, which slurmctld would not start now: %s. "+
				"Caelum releases the job when all components of het job %d can start and their slices are on offer",
			o.ID,
			o.Reason,
			w.HetJob,
		)
	case w.Priority == 0 && !w.Releasable(snapshot.At) && e.Held:
		return explained(
			NotEligible,
			"the job is held; an agent releases it when its slices are on offer%s",
			notBefore(w, snapshot.At),
		)
	case w.Priority == 0 && !w.Releasable(snapshot.At):
		return explained(
			NotEligible,
			"the job is held (%s): the user or administrator who held it must release it",
			w.Reason,
		)
	case snapshot.Queue.LacksLicense(w) != "":
		return explained(
			NotEligible,
			"the job requests the licences %s, and too few of %s are free; "+
				"no slice is reserved for the job until enough are free",
			w.Licenses,
			snapshot.Queue.LacksLicense(w),
		)
	case !snapshot.ready(w):
		return explained(
			NotEligible,
			"slurmctld would not start the job now even if its slices were free: %s%s",
			w.Reason,
			notBefore(w, snapshot.At),
		)
	}
	if o := held(snapshot, w); o != nil {
		return explained(
			NotEligible,
			"the job starts together with job %d, which slurmctld would not start now even if its slices were free: %s",
			o.ID,
			o.Reason,
		)
	}
	back := backOf(snapshot.Nodes)
	snapshot = behind(snapshot, func(w slurm.Waiting) bool { return snapshot.At.Before(back[entry(w)]) })
	v := New(snapshot, policy, nil)
	p := v.Plan()
	seen := map[uint32]bool{}
	at = -1
	for k, o := range v.Waiting {
		if seen[o.ID] || len(v.Jobs[k].Wants) == 0 {
			continue
		}
		seen[o.ID] = true
		if e.Of++; o.ID == id {
			at, e.Place = k, e.Of
		}
	}
	if at < 0 {
		return explained(Nowhere, "no eligible node: %s", v.why(w, snapshot.Nodes))
	}
	e, err := v.explain(e, p, at, wants)
	if until := back[entry(w)]; snapshot.At.Before(until) {
		e.BackUntil = until.Unix()
		e.Text += fmt.Sprintf(
			"; the job's slices were on offer for %d minutes, but slurmctld did not start the job: "+
				"until %s the job comes after all other jobs",
			int(patience.Minutes()),
			clock(e.BackUntil),
		)
	}
	if het := hetInFront(snapshot, w); e.Verdict == OnOffer && het != 0 {
		e.Before = het
		e.Text += fmt.Sprintf(
			"; but het job %d is earlier in the queue, and slurmctld starts the jobs behind a het job "+
				"by backfill only, on nodes that the components of the het job cannot use",
			het,
		)
	}
	return e, err
}

// hetInFront returns the id of the first het job that is earlier in the queue than w and has a partition in common with
// it; 0: there is none.
func hetInFront(snapshot Snapshot, w slurm.Waiting) uint32 {
	for _, o := range snapshot.Queue.InOrder() {
		common := slices.ContainsFunc(o.Partitions(), func(p string) bool { return slices.Contains(w.Partitions(), p) })
		switch {
		case o.ID == w.ID:
			return 0
		case o.HetJob != 0 && o.HetJob != w.HetJob && o.Eligible() && common:
			return o.HetJob
		}
	}
	return 0
}

// held returns another component of the same het job that could not start even if it had its slices, and therefore
// keeps w from starting; nil: there is none.
func held(snapshot Snapshot, w slurm.Waiting) *slurm.Waiting {
	for k := range snapshot.Queue.Waiting {
		o := &snapshot.Queue.Waiting[k]
		if w.HetJob != 0 && o.HetJob == w.HetJob && o.ID != w.ID && !snapshot.ready(*o) {
			return o
		}
	}
	return nil
}

// components lists the components of a het job that have ended, by job id, with the verb.
func components(ids []uint32) string {
	text := make([]string, len(ids))
	for k, id := range ids {
		text[k] = fmt.Sprint(id)
	}
	if len(ids) == 1 {
		return "job " + text[0] + " has"
	}
	return "jobs " + strings.Join(text, ", ") + " have"
}

// explain completes the explanation of the k-th job, which waits for its slices.
func (v *View) explain(e Explanation, p offer.Plan, k int, wants string) (Explanation, error) {
	j, w := v.Jobs[k], v.Waiting[k]
	e.On = v.On(p.Spots[k])
	nodes := strings.Join(e.On, ", ")
	switch {
	case p.Spots[k] != nil &&
		!slices.ContainsFunc(e.On, func(n string) bool { return !v.Members[v.Member(n)].HasFree(w) }):
		e.Verdict, e.Text = OnOffer, fmt.Sprintf(
			"%s is on offer for the job on %s: slurmctld starts the job when it next goes through the queue",
			wants,
			nodes,
		)
		if later := v.later(w, p.Spots[k]); later != "" {
			e.Text = fmt.Sprintf(
				"%s is reserved for the job and on offer on %s, but the job cannot start there yet: %s",
				wants,
				nodes,
				later,
			)
		}
		return e, nil
	case p.Spots[k] != nil:
		e.Verdict, e.Text = Planned, fmt.Sprintf("%s will shortly be on offer for the job on %s", wants, nodes)
		return e, nil
	}
	r := p.Reserved
	leader, together := offer.Components(v.Jobs, k)
	if r != nil && r.Job == leader {
		if j.Het == 0 && v.unix(r.At) == 0 {
			v.startAll(p.Spots[:leader])
			if v.explainLacking(&e, j, w, wants) {
				return e, nil
			}
		}
		if j.Het != 0 {
			wants = fmt.Sprintf("the slices of all components of het job %d", j.Het)
		}
		e.On, e.Verdict = v.On(r.Spots), First
		e.Text = "the job is the first that has to wait: there is no room for " + wants + timeUnknown
		if e.At = v.unix(r.At); e.At > 0 {
			e.Text = fmt.Sprintf(
				"the job is the first that has to wait: room for %s is reserved on %s from %s, "+
					"when the jobs in its way are expected to have ended",
				wants,
				strings.Join(e.On, ", "),
				clock(e.At),
			)
		}
		return e, nil
	}
	if kept := p.Kept; kept != nil && kept.Job == leader {
		e.Verdict, e.On = Lacks, v.On(kept.Spots)
		e.Text = fmt.Sprintf(
			"the job's slices on %s are reserved, "+
				"but lent to jobs that end before the job is expected to start there: %s",
			strings.Join(e.On, ", "),
			v.later(w, kept.Spots),
		)
		return e, nil
	}
	// The jobs that the plan serves start first. The rest of the room is then left for this job.
	v.startAll(p.Spots)
	room, why := v.FindAll(together, nil)
	if room != nil {
		spots := room[k-leader]
		e.Verdict, e.On = Behind, v.On(spots)
		front := v.sameProfile(p, leader, k, spots)
		switch {
		case front != nil:
			e.Before = front.ID
			e.Text = fmt.Sprintf(
				"job %[1]d is earlier in the queue and waits for the same profile: "+
					"slurmctld would start job %[1]d instead",
				front.ID,
			)
		case r != nil:
			e.Before = v.Jobs[r.Job].ID
			e.Text = fmt.Sprintf("the room for the job is reserved for job %d, which is earlier in the queue", e.Before)
			if e.At = v.unix(r.At); e.At > 0 {
				e.Text += "; the job can start there earlier only if its time limit expires before " + clock(e.At)
			}
		default:
			e.Text = "the job's turn comes when the earlier jobs in the queue have started"
		}
		return e, nil
	}
	if v.explainLacking(&e, j, w, wants) {
		return e, nil
	}
	e.Verdict, e.Text = NoRoom, fmt.Sprintf("there is no room for %s", wants)
	if j.Het != 0 {
		e.Text = fmt.Sprintf("there is no room for all components of het job %d, each on its own node", j.Het)
	}
	first := v.ReserveAll(together, why)
	if e.At = v.unix(first.At); e.At == 0 {
		e.Text += timeUnknown
		return e, nil
	}
	e.On = v.On(first.Spots)
	e.Text += fmt.Sprintf(
		"; there may be room on %s from %s, when the jobs in its way are expected to have ended, "+
			"but earlier jobs in the queue get it first",
		strings.Join(e.On, ", "),
		clock(e.At),
	)
	return e, nil
}

const timeUnknown = ", and the time when there will be room is unknown"

// notBefore returns from when slurmctld would start a job, as an addition to a sentence; empty if that time has passed.
func notBefore(w slurm.Waiting, now time.Time) string {
	if !w.Job.Eligible.After(now) {
		return ""
	}
	return " (not before " + w.Job.Eligible.Format(time.DateTime) + ")"
}

// startAll makes the spots of planned jobs busy in the pool. all begins with the first job of the queue.
func (v *View) startAll(all [][]offer.Spot) {
	for i, spots := range all {
		for _, s := range spots {
			v.Pool.Start(s.GPU, s.Placement, v.Now+v.Jobs[i].RunTime)
		}
	}
}

// explainLacking fills in an explanation if there is room for a job in the pool and only something else keeps the job
// from starting there. It reports whether it did.
func (v *View) explainLacking(e *Explanation, j *offer.Job, w slurm.Waiting, wants string) bool {
	if j.DeferredNodes == nil {
		return false
	}
	free := *j
	free.DeferredNodes = nil
	spots, _ := v.Find(&free, nil)
	if spots == nil {
		return false
	}
	e.Verdict, e.On = Lacks, v.On(spots)
	e.Text = fmt.Sprintf("there is room for %s on %s, but something else keeps the job from starting there: %s",
		wants, strings.Join(e.On, ", "), v.later(w, spots))
	return true
}

// later returns the reason, other than slices, why a job cannot start on the nodes of these spots. It begins with the
// name of the first such node; empty: there is none.
func (v *View) later(w slurm.Waiting, spots []offer.Spot) string {
	for _, name := range v.On(spots) {
		m := v.Member(name)
		if why := v.Members[m].DeferReason(w, v.since[m]); why != "" {
			return name + " " + why
		}
	}
	return ""
}

// sameProfile returns the first of the jobs before the k-th that waits for one of the same profiles, and that slurmctld
// could start on one of the nodes of room with the slices that would be on offer there; nil: there is none. front is
// how many jobs are considered.
func (v *View) sameProfile(p offer.Plan, front, k int, room []offer.Spot) *offer.Job {
	for i := range front {
		common := slices.ContainsFunc(v.Jobs[i].Wants, func(w offer.Want) bool {
			return slices.ContainsFunc(v.Jobs[k].Wants, func(x offer.Want) bool {
				return x.Profile == w.Profile && slices.ContainsFunc(v.On(room), func(n string) bool {
					return w.Count <= x.Count+v.Offered(&p, x.Profile, v.Member(n))
				})
			})
		})
		if p.Spots[i] == nil && common &&
			slices.ContainsFunc(v.On(room), func(n string) bool { return v.Jobs[i].CanStartOn(v.Member(n)) }) {
			return v.Jobs[i]
		}
	}
	return nil
}

// why lists the managed nodes with the reason why each cannot run a job.
func (v *View) why(w slurm.Waiting, nodes []slurm.Node) string {
	var all []string
	for _, n := range nodes {
		_, closed := n.Free("mig")[slurm.ClosedType]
		if In(n.Extra) == "" && !closed { // a catalogue node, or a node without managed GPUs
			continue
		}
		m := v.Member(n.Name)
		why := n.RejectReason(w)
		switch {
		case In(n.Extra) == "":
			why = "has no agent that publishes offers (run `caelum doctor` there)"
		case why != "":
		case m < 0:
			why = "is not ready"
		case v.room(Job(w).Wants)(m) == nil:
			why = "cannot hold " + list(w.SlicesPerNode())
		case w.HetJob != 0:
			why = fmt.Sprintf(
				"could run the job, but all components of het job %d start together, each on its own node",
				w.HetJob,
			)
		default:
			why = fmt.Sprintf("could be one of the %d nodes that the job needs", w.NumNodes)
		}
		all = append(all, n.Name+" "+why)
	}
	if all == nil {
		return "no agent has published offers"
	}
	return strings.Join(all, "; ")
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

// never is farther away than any time limit, in seconds. slurmctld expects a job without a time limit to run for a
// year.
const never = 300 * 24 * 3600

// unix returns a time in Unix seconds; 0 if it is unknown.
func (v *View) unix(at float64) int64 {
	if at-v.Now > never {
		return 0
	}
	return int64(at)
}

func clock(at int64) string {
	return time.Unix(at, 0).Format(time.DateTime)
}
