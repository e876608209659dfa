package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// explainByPlan uses the plan to explain a job that could start if its slices were offered. wants names these slices.
func (e *Explanation) explainByPlan(snapshot Snapshot, settings Settings, w slurm.Waiting, wants string) {
	back := backOf(snapshot.Nodes)
	snapshot = behind(snapshot, func(w slurm.Waiting) bool { return snapshot.At.Before(back[entry(w)]) })
	v := New(snapshot, settings, nil)
	k := e.setPlace(v, w.ID)
	if k < 0 {
		e.explainNowhere(v, w, snapshot.Nodes)
		return
	}
	leader, together := offer.Components(v.Jobs, k)
	x := inPlan{View: v, plan: v.Plan(), k: k, leader: leader, together: together, wants: wants}
	e.setDeadline(v, x.plan, k) // must precede x.explain, which changes the pool
	x.explain(e)
	e.addUnplanned(v, snapshot.Nodes)
	if until := back[entry(w)]; snapshot.At.Before(until) {
		e.BackUntil = until.Unix()
		e.Text += fmt.Sprintf(
			"; the job's slices were on offer for %d minutes, but slurmctld did not start the job. "+
				"Until %s, the agents plan the job after all other jobs",
			int(patience.Minutes()),
			clock(e.BackUntil),
		)
	}
	if het := hetInFront(snapshot, w); e.Verdict == OnOffer && het != 0 {
		e.Before = het
		e.Text += fmt.Sprintf(
			"; but het job %d is earlier in the queue. slurmctld starts the jobs behind a het job "+
				"only by backfill, and only on nodes that no component of the het job can use",
			het,
		)
	}
}

// explainNowhere explains a job for which no node is eligible, even if all slices were free.
func (e *Explanation) explainNowhere(v *View, w slurm.Waiting, nodes []slurm.Node) {
	why, never := v.ineligibleNodes(w, nodes)
	if !never {
		e.set(Nowhere, "no node is eligible for the job: %s", why)
		return
	}
	e.Held = false
	missing, id := "no node can meet its request", ref(*w.Job)
	if w.HetJob != 0 {
		id = fmt.Sprint(w.HetJob) // a pending component cannot be cancelled alone
	}
	if w.NumNodes > 1 {
		missing = fmt.Sprintf("fewer than %d nodes can meet its request", w.NumNodes)
	}
	e.set(
		Nowhere,
		"the job will not start, because %s: %s. Cancel the job with `scancel %s`, and submit it with a request that "+
			"the nodes can meet",
		missing,
		why,
		id,
	)
}

// addUnplanned adds, to the explanation of a job that is waiting for room, the names of the nodes whose agents do not
// publish offers, and of the nodes with GPUs that their agents do not manage. Plans do not include these nodes and
// GPUs.
func (e *Explanation) addUnplanned(v *View, nodes []slurm.Node) {
	if e.Verdict != First && e.Verdict != Behind && e.Verdict != NoRoom {
		return
	}
	var names, parts []string
	for _, n := range nodes {
		if v.Member(n.Name) >= 0 && unmanaged(n) > 0 {
			parts = append(parts, n.Name)
		}
		_, closed := n.Free("mig")[slurm.ClosedType]
		if closed && StateIn(n.Extra) == "" && eligible.Schedulable(n) && v.Member(n.Name) < 0 {
			names = append(names, n.Name)
		}
	}
	if len(names) > 0 {
		e.Text += fmt.Sprintf(
			"; no slice can be offered on %[1]s, because no agent publishes offers there "+
				"(run `caelum doctor` on %[1]s)",
			strings.Join(names, ", "),
		)
	}
	if len(parts) > 0 {
		e.Text += fmt.Sprintf("; some GPUs are not managed, for example after a fatal Xid error, on %s "+
			"(`caelum status` there shows the reason)", strings.Join(parts, ", "))
	}
}

// unmanaged returns the number of a node's GPUs that its agent does not manage.
func unmanaged(n slurm.Node) (count int) {
	s, err := Parse(StateIn(n.Extra))
	for _, g := range s.GPUs {
		if err == nil && g.Model == nil {
			count++
		}
	}
	return count
}

// setPlace sets the job's position among the jobs that are waiting for slices, and returns its index in the view, or -1
// if the job is not waiting for slices.
func (e *Explanation) setPlace(v *View, id uint32) (k int) {
	k = -1
	seen := map[uint32]bool{}
	for i, o := range v.Waiting {
		if seen[o.ID] || len(v.Jobs[i].Wants) == 0 {
			continue
		}
		seen[o.ID] = true
		if e.Of++; o.ID == id {
			k, e.Place = i, e.Of
		}
	}
	return k
}

// hetInFront returns the id of the first het job that precedes w in the queue and shares a partition with w, or 0 if
// there is no such job.
func hetInFront(snapshot Snapshot, w slurm.Waiting) uint32 {
	for _, o := range eligible.InOrder(snapshot.Queue) {
		common := slices.ContainsFunc(o.Partitions(), func(p string) bool { return slices.Contains(w.Partitions(), p) })
		switch {
		case o.ID == w.ID:
			return 0
		case o.HetJob != 0 && o.HetJob != w.HetJob && eligible.WaitsForNodes(o) && common:
			return o.HetJob
		}
	}
	return 0
}

// inPlan is a waiting job and the plan that determines when it starts.
type inPlan struct {
	*View
	plan     offer.Plan
	k        int          // the index of the job
	leader   int          // the index of the first job in together
	together []*offer.Job // all jobs that start together, including this job
	wants    string       // the names of the job's slices
}

// explain distinguishes five cases: the job is planned, it is the first job that must wait, its slices are lent to
// other jobs, it would exceed the limit on full GPUs, or it is waiting for other jobs or resources.
func (x *inPlan) explain(e *Explanation) {
	r, kept := x.plan.Reserved, x.plan.Kept
	switch spots := x.plan.Spots[x.k]; {
	case spots != nil:
		x.explainPlanned(e, spots)
		if x.setLarger(e, spots) {
			e.Text += fmt.Sprintf("; the job gets a larger slice, %s%s", e.Larger, e.onLarger())
		}
	case r != nil && r.Job == x.leader:
		x.explainFirst(e, r)
		if x.setLarger(e, r.Spots) {
			e.Text += fmt.Sprintf("; the reserved slice is a %s%s. The job will start later on the larger slice, "+
				"but is expected to end earlier", e.Larger, e.onLarger())
		}
	case kept != nil && kept.Job == x.leader:
		e.On = x.On(kept.Spots)
		e.set(
			Lacks,
			"the job's slices on %s are reserved for it, but have been lent to other jobs that will end in time. It "+
				"cannot start there yet: %s",
			strings.Join(e.On, ", "),
			x.deferReason(*x.Waiting[x.k], kept.Spots),
		)
	case x.plan.OverQuota != nil && x.plan.OverQuota[x.k]:
		x.explainOverQuota(e)
	default:
		x.explainWaiting(e)
	}
}

// explainOverQuota explains a job that has no spots because too many GPUs would be full.
func (x *inPlan) explainOverQuota(e *Explanation) {
	if x.WholeShare > 0 {
		e.set(
			OverQuota,
			"other jobs are waiting for slices, and with %s, the share of full GPUs would exceed whole_share (%v). "+
				"The job can start when fewer GPUs are full, or when no waiting job can use the GPUs for slices",
			x.wants,
			x.WholeShare,
		)
		return
	}
	e.set(
		OverQuota,
		"the jobs waiting for slices need at least as many GPUs as %s. These jobs start first (whole_share: 0). The "+
			"job can start when fewer jobs wait for slices, when no waiting job can use the GPUs for slices, or after "+
			"it has waited for %v",
		x.wants,
		time.Duration(offer.MaxDeferral)*time.Second,
	)
}

// setLarger sets the fields of the explanation for a larger slice. It returns false if the job's slice has the
// requested profile.
func (x *inPlan) setLarger(e *Explanation, spots []offer.Spot) bool {
	j := x.Jobs[x.k]
	if len(spots) != 1 || len(j.Wants) != 1 {
		return false
	}
	got := x.Pool.GPU(spots[0].GPU).Model.ProfileOf(spots[0].Placement)
	if !slices.ContainsFunc(j.Wants[0].Sizes, func(s offer.Size) bool { return s.Profile == got }) {
		return false
	}
	e.Larger = got
	if t := j.RunTime * j.Wants[0].Takes(got); !math.IsInf(t, 1) {
		e.RunTime = math.Round(t)
	}
	return true
}

// onLarger returns a phrase with the expected run time on the larger slice, or an empty string if the run time is
// unknown.
func (e *Explanation) onLarger() string {
	if e.RunTime == 0 {
		return ""
	}
	return fmt.Sprintf(", on which the job is expected to run for %v", time.Duration(e.RunTime)*time.Second)
}

// explainPlanned explains a job to which the plan assigns spots.
func (x *inPlan) explainPlanned(e *Explanation, spots []offer.Spot) {
	w := x.Waiting[x.k]
	e.On = x.On(spots)
	nodes := strings.Join(e.On, ", ")
	if slices.ContainsFunc(e.On, func(n string) bool { return !eligible.HasFree(x.Members[x.Member(n)], *w) }) {
		e.set(
			Planned,
			"room for %s is free on %s, and the agents plan to offer it to this job. slurmctld cannot start the "+
				"job until the node's agent has published the offer, which takes up to poll_interval (15 s by default)",
			x.wants,
			nodes,
		)
		return
	}
	if later := x.deferReason(*w, spots); later != "" {
		e.set(
			OnOffer,
			"%s is reserved for the job and on offer on %s, but the job cannot start there yet: %s",
			x.wants,
			nodes,
			later,
		)
		return
	}
	if w.Reason == badConstraints {
		e.set(OnOffer, "%s is on offer for the job on %s, %s. An agent releases the job in its next pass. If the "+
			"reason becomes BadConstraints again, %s", x.wants, nodes, heldByConstraints, checkConstraints(*w.Job))
		return
	}
	if completing := x.completing(e.On); len(completing) > 0 {
		e.set(
			OnOffer,
			"%s is on offer for the job on %s, but the state of %s is COMPLETING: slurmctld does not start the job "+
				"there until the epilog of the job that is ending on the node has run",
			x.wants,
			nodes,
			strings.Join(completing, ", "),
		)
		return
	}
	if x.explainBackfill(e, *w, nodes) {
		return
	}
	e.set(
		OnOffer,
		"%s is on offer for the job on %s: slurmctld will start the job in its next scheduling cycle",
		x.wants,
		nodes,
	)
}

// explainBackfill explains a job whose slices are on offer on nodes, but which slurmctld plans to start later. It
// returns false if slurmctld has no such plan. slurmctld's backfill scheduler reserves whole nodes for the jobs that it
// plans, and starts no job there that could last longer (plugins/sched/backfill, 22.05.8).
func (x *inPlan) explainBackfill(e *Explanation, w slurm.Waiting, nodes string) bool {
	if !w.Start.After(x.now) {
		return false
	}
	text := fmt.Sprintf("%s is on offer for the job on %s, but slurmctld plans to start the job at %s", x.wants, nodes,
		clock(w.Start.Unix()))
	for k, first := range x.Waiting[:x.k] {
		end := x.now.Add(w.TimeLimit)
		if !first.Start.After(x.now) || w.TimeLimit > 0 && first.Start.After(end) || !x.couldRunOn(k, e.On) {
			continue
		}
		e.Before = first.ID
		return e.set(OnOffer, "%s, because it keeps the node for job %s, which it plans to start at %s. It starts "+
			"the job earlier if the job's time limit ends before then: run `scontrol update jobid=%s timelimit=...`",
			text, ref(*first.Job), clock(first.Start.Unix()), ref(*w.Job))
	}
	return e.set(OnOffer, "%s (its reason: %s)", text, w.Reason)
}

// couldRunOn reports whether slurmctld can plan the k-th job on one of the nodes once their running jobs have ended:
// its plans use the total counts of profiles.
func (x *inPlan) couldRunOn(k int, nodes []string) bool {
	return slices.ContainsFunc(nodes, func(name string) bool {
		total := x.Members[x.Member(name)].Gres.Profiles()
		return !slices.ContainsFunc(x.Waiting[k].SlicesPerNode(), func(g slurm.GRES) bool {
			return total[g.Type] < g.Count
		})
	})
}

// completing returns those of the nodes on which a job is ending. slurmctld does not start other jobs there
// (_pick_best_nodes in node_scheduler.c, 22.05.8 and 24.11.5).
func (x *inPlan) completing(nodes []string) (all []string) {
	for _, n := range nodes {
		if x.Members[x.Member(n)].Is("COMPLETING") {
			all = append(all, n)
		}
	}
	return all
}

// explainFirst explains the first job that must wait, for which r is reserved.
func (x *inPlan) explainFirst(e *Explanation, r *offer.Reservation) {
	wants := x.wants
	if het := x.Jobs[x.k].Het; het != 0 {
		wants = fmt.Sprintf("the slices of all components of het job %d", het)
	} else if x.unix(r.At) == 0 {
		x.startAll(x.plan.Spots[:x.leader])
		if x.explainLacking(e) {
			return
		}
	}
	e.On = x.On(r.Spots)
	if e.At = x.unix(r.At); e.At == 0 {
		e.set(First, "the job is the first in the queue that must wait: the GPUs have no room for "+
			"%s%s", wants, timeUnknown)
		return
	}
	e.set(
		First,
		"the job is the first in the queue that must wait: room for %s is reserved on %s from %s, the time by which "+
			"the jobs in that room are expected to end",
		wants,
		strings.Join(e.On, ", "),
		clock(e.At),
	)
}

// explainWaiting explains a job behind the first job that must wait. The planned jobs start first, so this job can use
// only the units that they leave free.
func (x *inPlan) explainWaiting(e *Explanation) {
	x.startAll(x.plan.Spots)
	room, why := x.FindAll(x.together, nil)
	switch {
	case room != nil:
		x.explainBehind(e, room[x.k-x.leader])
	case !x.explainLacking(e):
		x.explainNoRoom(e, why)
	}
}

// explainBehind explains a job that cannot start even though the given spots are free, because they are assigned to an
// earlier job.
func (x *inPlan) explainBehind(e *Explanation, spots []offer.Spot) {
	e.On = x.On(spots)
	front, r := x.sameProfile(x.plan, x.leader, x.k, spots), x.plan.Reserved
	switch {
	case front != nil:
		e.Before = front.ID
		e.set(
			Behind,
			"room for %[2]s is free but not on offer: job %[1]d is earlier in the queue and requests the same "+
				"profile, so slurmctld would use an offer for job %[1]d and not for this job",
			front.ID,
			x.wants,
		)
	case r != nil:
		e.Before = x.Jobs[r.Job].ID
		e.set(Behind, "the room for the job is reserved for job %d, which is earlier in the queue", e.Before)
		if e.At = x.unix(r.At); e.At > 0 {
			e.Text += "; this job can use the room only if its time limit expires before " + clock(e.At)
		}
	default:
		e.set(Behind, "jobs that are earlier in the queue start first; this job can start afterwards")
	}
}

// explainLacking explains a job for which slices are free only on nodes on which it lacks other resources. It returns
// false if this explanation does not apply.
func (x *inPlan) explainLacking(e *Explanation) bool {
	j := *x.Jobs[x.k]
	if j.DeferredNodes == nil {
		return false
	}
	j.DeferredNodes = nil
	spots, _ := x.Find(&j, nil)
	if spots == nil {
		return false
	}
	e.On = x.On(spots)
	return e.set(Lacks, "room for %s is free on %s, but the job cannot start there yet: %s",
		x.wants, strings.Join(e.On, ", "), x.deferReason(*x.Waiting[x.k], spots))
}

// explainNoRoom explains a job whose slices are not free. why is the policy's result for the job.
func (x *inPlan) explainNoRoom(e *Explanation, why place.Choice) {
	e.set(NoRoom, "the GPUs have no room for %s", x.wants)
	if het := x.Jobs[x.k].Het; het != 0 {
		e.set(NoRoom, "the GPUs have no room for all components of het job %d on separate nodes", het)
	}
	r := x.ReserveAll(x.together, why)
	if e.At = x.unix(r.At); e.At == 0 {
		e.Text += timeUnknown
		return
	}
	e.On = x.On(r.Spots)
	e.Text += fmt.Sprintf(
		"; room on %s is expected to become free by %s, "+
			"but earlier jobs in the queue will get it first",
		strings.Join(e.On, ", "),
		clock(e.At),
	)
}

const timeUnknown = ", and the time at which room becomes free is unknown"

// startAll marks the spots of planned jobs as busy in the pool. all lists the spots of each job, in queue order.
func (v *View) startAll(all [][]offer.Spot) {
	for i, spots := range all {
		for _, s := range spots {
			v.Pool.Start(s.GPU, s.Placement, v.Now+v.Jobs[i].RunTime)
		}
	}
}

// deferReason looks for the first node that contains one of the spots but on which the job cannot start for a reason
// other than slices. It returns the node's name and the reason, or "" if the job could start on all of these nodes.
func (v *View) deferReason(w slurm.Waiting, spots []offer.Spot) string {
	for _, name := range v.On(spots) {
		m := v.Member(name)
		if why := eligible.DeferReason(v.Members[m], w, v.known[m].parsed.Since); why != "" {
			return name + " " + why
		}
	}
	return ""
}

// sameProfile returns the first earlier job that slurmctld would start instead of the k-th job, or nil if it would
// start the k-th job. The returned job is waiting for a profile that the k-th job requests, and could start on one of
// the nodes in room with the slices that would be offered on that node. Only jobs with an index below front are
// considered.
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

// never is 300 days in seconds. An expected start that is further away is treated as unknown. The constant is longer
// than any time limit, but shorter than the year for which slurmctld expects a job without a time limit to run.
const never = 300 * 24 * 3600

// unix converts a time of the plan to Unix seconds. It returns 0 for an unknown time.
func (v *View) unix(at float64) int64 {
	if at-v.Now > never {
		return 0
	}
	return int64(at)
}
