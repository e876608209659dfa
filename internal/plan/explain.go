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

// Verdict is why a job has no slice yet, or has one.
type Verdict string

const (
	Started     Verdict = "started"      // it has its slices, or they are being made
	Over        Verdict = "over"         // it has ended, or is ending
	NoSlice     Verdict = "no-slice"     // it asks for none
	Unreadable  Verdict = "unreadable"   // its request cannot be read
	NotEligible Verdict = "not-eligible" // slurmctld would not start it if it had a GPU to itself
	Nowhere     Verdict = "nowhere"      // no node would take it now, whatever slices were free
	OnOffer     Verdict = "on-offer"     // slurmctld may start it at its next turn
	Planned     Verdict = "planned"      // its slices are about to be put on offer
	First       Verdict = "first"        // it is the first that has to wait: room is kept for it
	Behind      Verdict = "behind"       // there would be room, but it is for somebody in front
	Lacks       Verdict = "lacks"        // there would be room, but something else keeps it from starting there
	NoRoom      Verdict = "no-room"      // there is none
)

// Explanation says why a job waits, or that it does not.
type Explanation struct {
	Job     uint32  `json:"job"`
	State   string  `json:"state"`
	Reason  string  `json:"reason"`          // slurmctld's
	Sized   string  `json:"sized,omitempty"` // the profile, where the job named none and Caelum chose it
	Verdict Verdict `json:"verdict"`
	// Text is one sentence for people.
	Text string `json:"text"`
	// Place is its place among those that wait for slices, of Of; 0: it is none of them.
	Place int `json:"place,omitempty"`
	Of    int `json:"of,omitempty"`
	// On are the nodes that it has, or is planned on, or will be.
	On []string `json:"on,omitempty"`
	// At is when it can start by the time limits of those in its way, Unix seconds; 0: nobody knows.
	At int64 `json:"at,omitempty"`
	// Before is the waiting job that is served first.
	Before uint32 `json:"before,omitempty"`
	// BackUntil is until when it comes after all other jobs, Unix seconds, because slurmctld did not start it while its
	// slices were on offer; 0: it does not, or its agents have not published it.
	BackUntil int64 `json:"back_until,omitempty"`
	// Held: job_submit.lua or an agent holds it, and an agent releases it.
	Held bool `json:"held,omitempty"`
}

// Explain says why the job with this id waits, by the plan that agents make from the same look. ErrNoJob.
func Explain(snapshot Snapshot, policy place.Policy, id uint32) (Explanation, error) {
	k := slices.IndexFunc(snapshot.Queue.All, func(j slurm.Job) bool { return j.ID == id })
	if k < 0 {
		return Explanation{}, fmt.Errorf("job %d: %w", id, slurm.ErrNoJob)
	}
	j := snapshot.Queue.All[k]
	e := Explanation{Job: id, State: j.State, Reason: j.Reason, Sized: slurm.TagValue(j.AdminComment, slurm.TagSized)}
	wants := list(j.SlicesPerNode())
	say := func(v Verdict, format string, args ...any) (Explanation, error) {
		e.Verdict, e.Text = v, fmt.Sprintf(format, args...)
		return e, nil
	}
	switch {
	case j.Holds() && wants == "":
		e.On = j.Nodes
		return say(
			Started,
			"it has started on %s, and has asked for no slice of a known size",
			strings.Join(j.Nodes, ", "),
		)
	case j.Holds():
		e.On = j.Nodes
		return say(
			Started,
			"it has started on %s and has %s there, as Slurm counts it; `caelum job %d` on the node shows the slices",
			strings.Join(j.Nodes, ", "),
			wants,
			id,
		)
	case j.State != "PENDING":
		return say(Over, "it is %s", j.State)
	}
	at := slices.IndexFunc(snapshot.Queue.Waiting, func(w slurm.Waiting) bool { return w.ID == id })
	if at < 0 { // it was waiting at the first of two looks at the queue
		return say(Started, "it is starting, or has been cancelled")
	}
	w := snapshot.Queue.Waiting[at]
	e.Held = w.HeldByTag()
	if w.HetJob != 0 {
		if ended := snapshot.hetJobs()[w.HetJob].ended; len(ended) > 0 {
			e.Held = false
			return say(
				NotEligible,
				"it can never start: slurmctld starts the components of het job %d together, and of these %s ended; "+
					"cancel it with `scancel %d` and submit the het job again",
				w.HetJob,
				components(ended),
				w.HetJob,
			)
		}
	}
	switch {
	case w.Problem != "":
		return say(Unreadable, "what it asks for cannot be read: %s", w.Problem)
	case e.Held && len(Job(w).Wants) == 0:
		return say(
			NotEligible,
			"no slice could be had for it when it started, and it named no size: an agent gives it one and releases it%s",
			notBefore(w, snapshot.At),
		)
	case len(Job(w).Wants) == 0 && w.HetJob != 0:
		return say(
			NoSlice,
			"it asks for no slice of a known size; all components of het job %d start together, and another may wait for one",
			w.HetJob,
		)
	case len(Job(w).Wants) == 0:
		return say(NoSlice, "it asks for no slice of a known size, so no slice keeps it waiting")
	case e.Held && held(snapshot, w) != nil:
		o := held(snapshot, w)
		return say(
			NotEligible,
			"Caelum holds it because it starts with job %d, which slurmctld would not start now: %s. Both are released "+
				"when all components of het job %d can start and their slices are on offer",
			o.ID,
			o.Reason,
			w.HetJob,
		)
	case w.Priority == 0 && !w.Releasable(snapshot.At) && e.Held:
		return say(NotEligible, "it is released when its slices are on offer%s", notBefore(w, snapshot.At))
	case w.Priority == 0 && !w.Releasable(snapshot.At):
		return say(NotEligible, "it is held (%s): whoever holds it has to release it", w.Reason)
	case snapshot.Queue.LacksLicense(w) != "":
		return say(
			NotEligible,
			"it asks for the licences %s, and other jobs have left too few of %s; no slice is kept for it until then",
			w.Licenses,
			snapshot.Queue.LacksLicense(w),
		)
	case !snapshot.ready(w):
		return say(
			NotEligible,
			"slurmctld would not start it now, whatever is free: %s%s",
			w.Reason,
			notBefore(w, snapshot.At),
		)
	}
	if o := held(snapshot, w); o != nil {
		return say(
			NotEligible,
			"it starts with job %d, which slurmctld would not start now, whatever is free: %s",
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
	for k, one := range v.Waiting {
		if seen[one.ID] || len(v.Jobs[k].Wants) == 0 {
			continue
		}
		seen[one.ID] = true
		if e.Of++; one.ID == id {
			at, e.Place = k, e.Of
		}
	}
	if at < 0 {
		return say(Nowhere, "no node takes it, whatever slices are free: %s", v.why(w, snapshot.Nodes))
	}
	e, err := v.explain(e, p, at, wants)
	if until := back[entry(w)]; snapshot.At.Before(until) {
		e.BackUntil = until.Unix()
		e.Text += fmt.Sprintf(
			"; its slices were on offer for %d minutes and slurmctld did not start it: until %s it comes after all other jobs",
			int(patience.Minutes()),
			clock(e.BackUntil),
		)
	}
	if het := hetInFront(snapshot, w); e.Verdict == OnOffer && het != 0 {
		e.Before = het
		e.Text += fmt.Sprintf(
			"; but het job %d waits in front of it, and behind one slurmctld starts jobs by backfill only, on nodes that its components could not have",
			het,
		)
	}
	return e, err
}

// hetInFront is a het job that waits in front of another job, in one of its partitions; 0: there is none.
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

// held is another component of a het job that keeps all of it from starting, by itself; nil: none does.
func held(snapshot Snapshot, w slurm.Waiting) *slurm.Waiting {
	for k := range snapshot.Queue.Waiting {
		o := &snapshot.Queue.Waiting[k]
		if w.HetJob != 0 && o.HetJob == w.HetJob && o.ID != w.ID && !snapshot.ready(*o) {
			return o
		}
	}
	return nil
}

// components lists components of a het job that have ended, by job id.
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

// explain is for a job that waits for its slices, the k-th.
func (v *View) explain(e Explanation, p offer.Plan, k int, wants string) (Explanation, error) {
	j, w := v.Jobs[k], v.Waiting[k]
	e.On = v.On(p.Spots[k])
	nodes := strings.Join(e.On, ", ")
	switch {
	case p.Spots[k] != nil && !slices.ContainsFunc(e.On, func(n string) bool { return !v.Members[v.Member(n)].HasFree(w) }):
		e.Verdict, e.Text = OnOffer, fmt.Sprintf(
			"%s is on offer for it on %s: slurmctld starts it when it next goes through the queue",
			wants,
			nodes,
		)
		if later := v.later(w, p.Spots[k]); later != "" {
			e.Text = fmt.Sprintf(
				"%s is kept for it, on offer on %s, until nothing else keeps it from starting there: %s",
				wants,
				nodes,
				later,
			)
		}
		return e, nil
	case p.Spots[k] != nil:
		e.Verdict, e.Text = Planned, fmt.Sprintf("%s is being put on offer for it on %s", wants, nodes)
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
			wants = fmt.Sprintf("what all components of het job %d want", j.Het)
		}
		e.On, e.Verdict = v.On(r.Spots), First
		e.Text = fmt.Sprintf("it is the first that has to wait: there is no room for %s%s", wants, nobodyKnows)
		if e.At = v.unix(r.At); e.At > 0 {
			e.Text = fmt.Sprintf(
				"it is the first that has to wait: %s is kept for it on %s from %s, when those in its way are expected to have ended",
				wants,
				strings.Join(e.On, ", "),
				clock(e.At),
			)
		}
		return e, nil
	}
	if kept := p.Kept; kept != nil && kept.Job == leader {
		e.Verdict, e.On = Lacks, v.On(kept.Spots)
		e.Text = fmt.Sprintf("its slices on %s are lent to jobs that end before it is expected to start there: %s",
			strings.Join(e.On, ", "), v.later(w, kept.Spots))
		return e, nil
	}
	// Who is served first, and what is then left?
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
				"job %d is in front of it and waits for the same profile: slurmctld would start that one",
				front.ID,
			)
		case r != nil:
			e.Before = v.Jobs[r.Job].ID
			e.Text = fmt.Sprintf("the room that there is for it is kept for job %d, which is in front of it", e.Before)
			if e.At = v.unix(r.At); e.At > 0 {
				e.Text += fmt.Sprintf("; it would have to end before %s to have it first", clock(e.At))
			}
		default:
			e.Text = "it has its turn when those in front of it have started"
		}
		return e, nil
	}
	if v.explainLacking(&e, j, w, wants) {
		return e, nil
	}
	e.Verdict, e.Text = NoRoom, fmt.Sprintf("there is no room for %s", wants)
	if j.Het != 0 {
		e.Text = fmt.Sprintf("there is no room for all components of het job %d, each on a node of its own", j.Het)
	}
	first := v.ReserveAll(together, why)
	if e.At = v.unix(first.At); e.At == 0 {
		e.Text += nobodyKnows
		return e, nil
	}
	e.On = v.On(first.Spots)
	e.Text += fmt.Sprintf(
		"; on %s there may be from %s, when those in its way are expected to have ended, and who is in front of it comes first",
		strings.Join(e.On, ", "),
		clock(e.At),
	)
	return e, nil
}

const nobodyKnows = ", and nobody knows when there will be"

// notBefore says from when slurmctld would start a job, if that is still to come.
func notBefore(w slurm.Waiting, now time.Time) string {
	if !w.Job.Eligible.After(now) {
		return ""
	}
	return ", at " + w.Job.Eligible.Format(time.DateTime) + " at the earliest"
}

// startAll starts planned jobs on the pool, from the first of the queue on.
func (v *View) startAll(all [][]offer.Spot) {
	for i, spots := range all {
		for _, s := range spots {
			v.Pool.Start(s.GPU, s.Placement, v.Now+v.Jobs[i].Runs)
		}
	}
}

// explainLacking fills in an explanation if a job would have room on the pool if it lacked nothing else, and reports
// whether it did.
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
	e.Text = fmt.Sprintf("there is room for %s on %s, where something else keeps it from starting: %s",
		wants, strings.Join(e.On, ", "), v.later(w, spots))
	return true
}

// later says what but slices keeps a job from starting on the nodes where it is planned.
func (v *View) later(w slurm.Waiting, spots []offer.Spot) string {
	for _, name := range v.On(spots) {
		m := v.Member(name)
		if why := v.Members[m].DeferReason(w, v.since[m]); why != "" {
			return name + " " + why
		}
	}
	return ""
}

// sameProfile returns the first of so many jobs in front of the k-th that waits for a profile that it wants too, and
// that slurmctld could start with as many slices of it on one of the nodes where there is room.
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

// why says of each managed node why it cannot run a job.
func (v *View) why(w slurm.Waiting, nodes []slurm.Node) string {
	var all []string
	for _, n := range nodes {
		_, closed := n.Free("mig")[slurm.ClosedType]
		if In(n.Extra) == "" && !closed { // the catalogue's, or none of ours
			continue
		}
		m := v.Member(n.Name)
		why := n.RejectReason(w)
		switch {
		case In(n.Extra) == "":
			why = "has no agent that publishes anything (ask `caelum doctor` there)"
		case why != "":
		case m < 0:
			why = "is not ready"
		case v.room(Job(w).Wants)(m) == nil:
			why = "cannot hold " + list(w.SlicesPerNode())
		case w.HetJob != 0:
			why = fmt.Sprintf(
				"would do for it, but all components of het job %d start together, each on a node of its own",
				w.HetJob,
			)
		default:
			why = fmt.Sprintf("would do for one of the %d nodes that it needs", w.NumNodes)
		}
		all = append(all, n.Name+" "+why)
	}
	if all == nil {
		return "no agent has published anything"
	}
	return strings.Join(all, "; ")
}

func list(gres []slurm.GRES) string {
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

// never is further away than a time limit: slurmctld takes a job that has none to run for a year.
const never = 300 * 24 * 3600

// unix is a time in Unix seconds, 0 if nobody knows it.
func (v *View) unix(at float64) int64 {
	if at-v.Now > never {
		return 0
	}
	return int64(at)
}

func clock(at int64) string {
	return time.Unix(at, 0).Format(time.DateTime)
}
