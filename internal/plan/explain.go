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
}

// Explain says why the job with this id waits, by the plan that agents make from the same look. ErrNoJob.
func Explain(look Look, policy place.Policy, id uint32) (Explanation, error) {
	k := slices.IndexFunc(look.Queue.All, func(j slurm.Job) bool { return j.ID == id })
	if k < 0 {
		return Explanation{}, fmt.Errorf("job %d: %w", id, slurm.ErrNoJob)
	}
	j := look.Queue.All[k]
	e := Explanation{Job: id, State: j.State, Reason: j.Reason, Sized: slurm.Mark(j.AdminComment, slurm.MarkSized)}
	wants := list(j.SlicesPerNode())
	say := func(v Verdict, format string, args ...any) (Explanation, error) {
		e.Verdict, e.Text = v, fmt.Sprintf(format, args...)
		return e, nil
	}
	switch {
	case j.Holds() && wants == "":
		e.On = j.Nodes
		return say(Started, "it has started on %s, and has asked for no slice of a known size", strings.Join(j.Nodes, ", "))
	case j.Holds():
		e.On = j.Nodes
		return say(Started, "it has started on %s and holds %s there; `caelum job %d` on the node shows which", strings.Join(j.Nodes, ", "), wants, id)
	case j.State != "PENDING":
		return say(Over, "it is %s", j.State)
	}
	at := slices.IndexFunc(look.Queue.Waiting, func(w slurm.Waiting) bool { return w.ID == id })
	if at < 0 { // it was waiting at the first of two looks at the queue
		return say(Started, "it is starting, or has been cancelled")
	}
	w := look.Queue.Waiting[at]
	switch {
	case w.Problem != "":
		return say(Unreadable, "what it asks for cannot be read: %s", w.Problem)
	case len(Job(w).Wants) == 0:
		return say(NoSlice, "it asks for no slice of a known size, so no slice keeps it waiting")
	case w.Priority == 0 && !w.Releasable(look.At) && w.HeldByMark():
		return say(NotEligible, "it may start at %s at the earliest, and is released when its slices are on offer after that", w.Job.Eligible.Format(time.DateTime))
	case w.Priority == 0 && !w.Releasable(look.At):
		return say(NotEligible, "it is held (%s): whoever holds it has to release it", w.Reason)
	case !w.Eligible() && !w.Releasable(look.At):
		return say(NotEligible, "slurmctld would not start it now, whatever is free: %s", w.Reason)
	}
	v := New(look, policy, nil)
	p := v.Plan()
	seen := map[uint32]bool{}
	at = -1
	for k, one := range v.Waiting {
		if seen[one.ID] {
			continue
		}
		seen[one.ID] = true
		if e.Of++; one.ID == id {
			at, e.Place = k, e.Of
		}
	}
	if at < 0 {
		return say(Nowhere, "no node takes it now, whatever slices are free there: %s", v.why(w, look.Nodes))
	}
	return v.explain(e, p, at, wants)
}

// explain is for a job that waits for its slices, the k-th.
func (v *View) explain(e Explanation, p offer.Plan, k int, wants string) (Explanation, error) {
	j, w := v.Jobs[k], v.Waiting[k]
	e.On = v.On(p.Spots[k])
	nodes := strings.Join(e.On, ", ")
	switch {
	case p.Spots[k] != nil && !slices.ContainsFunc(e.On, func(n string) bool { return !v.Members[v.Member(n)].Has(w) }):
		e.Verdict, e.Text = OnOffer, fmt.Sprintf("%s is on offer for it on %s: slurmctld starts it when it next goes through the queue", wants, nodes)
		if later := v.later(w, p.Spots[k]); later != "" {
			e.Text = fmt.Sprintf("%s is kept for it, on offer on %s, until nothing else keeps it from starting there: %s", wants, nodes, later)
		}
		return e, nil
	case p.Spots[k] != nil:
		e.Verdict, e.Text = Planned, fmt.Sprintf("%s is being put on offer for it on %s", wants, nodes)
		return e, nil
	}
	r := p.Reserved
	if r != nil && r.Job == k {
		e.On, e.Verdict = v.On(r.Spots), First
		e.Text = fmt.Sprintf("it is the first that has to wait: there is no room for %s, and nobody knows when there will be", wants)
		if e.At = v.unix(r.At); e.At > 0 {
			e.Text = fmt.Sprintf("it is the first that has to wait: %s is kept for it on %s from %s, when those in its way have reached their time limits, if not sooner",
				wants, strings.Join(e.On, ", "), clock(e.At))
		}
		return e, nil
	}
	// Who is served first, and what is then left?
	for i, spots := range p.Spots {
		for _, s := range spots {
			v.Pool.Start(s.GPU, s.Placement, v.Now+v.Jobs[i].Runs)
		}
	}
	spots, why := v.Find(j, nil)
	if spots != nil {
		e.Verdict, e.On = Behind, v.On(spots)
		front := v.sameProfile(p, k)
		switch {
		case front != nil:
			e.Before = front.ID
			e.Text = fmt.Sprintf("job %d is in front of it and waits for the same profile: slurmctld would start that one", front.ID)
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
	e.Verdict, e.Text = NoRoom, fmt.Sprintf("there is no room for %s", wants)
	if first := v.Reserve(j, why); v.unix(first.At) > 0 {
		e.At, e.On = v.unix(first.At), v.On(first.Spots)
		e.Text += fmt.Sprintf("; the first comes free on %s at %s, when those in its way have reached their time limits, if not sooner", strings.Join(e.On, ", "), clock(e.At))
	}
	return e, nil
}

// later says what but slices keeps a job from starting on the nodes where it is planned.
func (v *View) later(w slurm.Waiting, spots []offer.Spot) string {
	for _, name := range v.On(spots) {
		m := v.Member(name)
		if why := v.Members[m].Later(w, v.since[m]); why != "" {
			return name + " " + why
		}
	}
	return ""
}

// sameProfile is the first in front of the k-th job that waits for a profile that it wants too.
func (v *View) sameProfile(p offer.Plan, k int) *offer.Job {
	for i := range k {
		if p.Spots[i] == nil && slices.ContainsFunc(v.Jobs[i].Wants, func(w offer.Want) bool {
			return slices.ContainsFunc(v.Jobs[k].Wants, func(x offer.Want) bool { return x.Profile == w.Profile })
		}) {
			return v.Jobs[i]
		}
	}
	return nil
}

// why says of each managed node why it cannot run a job.
func (v *View) why(w slurm.Waiting, nodes []slurm.Node) string {
	var all []string
	for _, n := range nodes {
		if In(n.Extra) == "" {
			continue
		}
		m := v.Member(n.Name)
		why := n.Refuses(w)
		switch {
		case why != "":
		case m < 0:
			why = "is not ready"
		case !v.fits(&offer.Job{Wants: Job(w).Wants, Nodes: 1, On: []int{m}}):
			why = "cannot hold it"
		default:
			why = "could hold a part of it"
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
