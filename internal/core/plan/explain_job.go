package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/mig"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// The functions in this file explain jobs for which no plan is needed: jobs that have started or ended, and jobs that
// slurmctld would not start even if their slices were offered. Each returns false if its explanation does not apply to
// the job.

// explainState explains a job that is not pending.
func (e *Explanation) explainState(j slurm.Job) bool {
	wants, nodes := list(j.SlicesPerNode()), strings.Join(j.Nodes, ", ")
	if j.Holds() {
		e.On = j.Nodes
	}
	switch {
	case j.Holds() && wants == "":
		return e.set(Started, "the job has started on %s; its request contains no MIG profile", nodes)
	case j.Holds():
		return e.set(
			Started,
			"the job has started on %s; Slurm accounts for the requested %s; "+
				"`caelum job %d` on the node shows the job's slices, which can be larger than requested",
			nodes,
			wants,
			j.ID,
		)
	case j.State != "PENDING":
		return e.set(Over, "the job has ended or is ending: its state is %s", j.State)
	}
	return false
}

// explainNotEligible explains a job that could not start even if its slices were offered.
func (e *Explanation) explainNotEligible(s Snapshot, w slurm.Waiting) bool {
	return e.explainEndedComponents(s, w) ||
		e.explainRequest(s, w) ||
		e.explainHold(s, w) ||
		e.explainOtherReason(s, w)
}

// explainEndedComponents explains a het job component that cannot start because another component has ended.
func (e *Explanation) explainEndedComponents(s Snapshot, w slurm.Waiting) bool {
	if w.HetJob == 0 {
		return false
	}
	ended := s.hetJobs()[w.HetJob].ended
	if len(ended) == 0 {
		return false
	}
	e.Held = false
	return e.set(
		NotEligible,
		"the job can never start: slurmctld starts the components of het job %d together, and %s ended; "+
			"cancel the het job with `scancel %d` and resubmit it",
		w.HetJob,
		components(w.HetJob, ended),
		w.HetJob,
	)
}

// explainRequest explains a job whose request cannot be parsed or does not include slices.
func (e *Explanation) explainRequest(s Snapshot, w slurm.Waiting) bool {
	switch {
	case w.Problem != "":
		return e.set(Unreadable, "the job's request cannot be read: %s", w.Problem)
	case len(Job(w).Wants) > 0:
		return false
	case e.Held:
		return e.set(
			NotEligible,
			"the job named no profile, and no slice was available when it started: "+
				"an agent will assign a profile to the job and release it%s",
			notBefore(w, s.At),
		)
	case w.HetJob != 0:
		return e.set(
			NoSlice,
			"the job's request contains no MIG profile, but all components of het job %d start together, "+
				"and another component may be waiting for a slice",
			w.HetJob,
		)
	}
	if w.GPUsPerNode() > 0 && slices.ContainsFunc(s.Nodes, func(n slurm.Node) bool { return hasSlices(n, w) }) {
		return e.set(
			NoSlice,
			"the job requests GPUs on nodes with slices, but no MIG profile. Caelum adds profiles only in partitions "+
				"that have a partition line in the decision table, and %s probably has none. Request a slice with "+
				"--gres=gpu:1,mig:PROFILE:1, or ask an administrator to add the line",
			w.Partition,
		)
	}
	return e.set(NoSlice, "the job's request contains no MIG profile, so it is not waiting for a slice")
}

// hasSlices reports whether a node is in one of the job's partitions and is managed.
func hasSlices(n slurm.Node, w slurm.Waiting) bool {
	return n.Managed() &&
		slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(w.Partitions(), p) })
}

// explainHold explains a held job that no agent would currently release.
func (e *Explanation) explainHold(s Snapshot, w slurm.Waiting) bool {
	other := unreadyComponent(s, w)
	switch {
	case e.Held && other != nil:
		return e.set(
			NotEligible,
			"Caelum holds the job: it starts together with job %[1]s, and slurmctld would not start job %[1]s "+
				"now: %[2]s. Caelum will release the job when all components of het job %[3]d can start "+
				"and their slices are on offer",
			ref(*other.Job),
			other.Reason,
			w.HetJob,
		)
	case w.Priority != 0 || eligible.Releasable(w, s.At):
		return false
	case e.Held:
		return e.set(
			NotEligible,
			"the job is held; an agent will release it when its slices are on offer%s",
			notBefore(w, s.At),
		)
	}
	if missing, node, ok := tags.UnavailableSlices(*w.Job); ok {
		return e.set(
			NotEligible,
			"the job is held: an agent stopped requeuing it, because %[2]s was not available on %[1]s when the job "+
				"started there. An administrator must check `caelum status` and the agent's log on %[1]s and then "+
				"run `scontrol release %[3]s`",
			node, missing, ref(*w.Job),
		)
	}
	if w.Reason == badConstraints {
		return e.set(NotEligible, "the job cannot start, %s. No agent releases the job, because Caelum did not hold "+
			"it: %s, and then run `scontrol release %s`", heldByConstraints, checkConstraints(*w.Job), ref(*w.Job))
	}
	return e.set(
		NotEligible,
		"the job is held (%s): the user or administrator who held it must release it",
		w.Reason,
	)
}

// badConstraints is slurmctld's reason for a job whose request no node could meet when slurmctld last tried to start
// it. slurmctld also sets the job's priority to 0, as for a held job.
const badConstraints = "BadConstraints"

// heldByConstraints explains the reason badConstraints.
const heldByConstraints = "but slurmctld holds it (BadConstraints), because no node could meet the whole request " +
	"when slurmctld last tried to start the job"

// checkConstraints returns the advice for a job whose request no node can meet.
func checkConstraints(j slurm.Job) string {
	return fmt.Sprintf("compare the CPUs, the memory (also per GPU) and the GRES in `scontrol show job %s` with those "+
		"of the nodes, and correct the request with `scontrol update`", ref(j))
}

// explainOtherReason explains a job that slurmctld would not start for a reason that is unrelated to slices. In a het
// job, the reason may apply to another component.
func (e *Explanation) explainOtherReason(s Snapshot, w slurm.Waiting) bool {
	lacking, other := eligible.LacksLicense(s.Queue, w), unreadyComponent(s, w)
	switch {
	case lacking != "":
		return e.set(
			NotEligible,
			"the job requests licences (%[1]s), but too few %[2]s licences are free; "+
				"Caelum reserves no slices for the job until enough %[2]s licences are free",
			w.Licenses,
			lacking,
		)
	case !s.ready(w):
		return e.set(
			NotEligible,
			"slurmctld would not start the job now even if its slices were free: %s%s",
			w.Reason,
			notBefore(w, s.At),
		)
	case other != nil:
		return e.set(
			NotEligible,
			"the job starts together with job %[1]s, and slurmctld would not start job %[1]s now "+
				"even if slices were free: %[2]s",
			ref(*other.Job),
			other.Reason,
		)
	}
	return false
}

// ineligibleNodes lists the managed nodes, each with the reason why it cannot run the job. never is true if fewer nodes
// than the job needs could run it even if nothing were temporarily missing (see ineligible).
func (v *View) ineligibleNodes(w slurm.Waiting, nodes []slurm.Node) (list string, never bool) {
	var all []string
	suitable := 0
	for _, n := range nodes {
		_, closed := n.Free("mig")[slurm.ClosedType]
		if StateIn(n.Extra) == "" && !closed { // a catalogue node, or a node without managed GPUs
			continue
		}
		why, permanent := v.ineligible(w, n)
		if !permanent {
			suitable++
		}
		all = append(all, n.Name+" "+why)
	}
	if all == nil {
		return "no agent has published offers", false
	}
	return strings.Join(all, "; "), suitable < max(w.NumNodes, 1)
}

// ineligible returns the reason why a managed node cannot run the job. permanent is true if the node could not run the
// job even if it were up, had an agent and were not reserved, and all its GPUs worked.
func (v *View) ineligible(w slurm.Waiting, n slurm.Node) (why string, permanent bool) {
	m := v.Member(n.Name)
	tooSmall := m >= 0 && v.roomFor(Job(w).Wants).like(m) == nil
	up, anywhere := n, w
	up.States, up.Reservations, anywhere.Reservation = nil, nil, ""
	permanent = tooSmall && v.complete(m, w) || eligible.RejectReason(up, anywhere) != ""
	switch why = eligible.RejectReason(n, w); {
	case StateIn(n.Extra) == "":
		return "has no agent that publishes offers (run `caelum doctor` there)", permanent
	case why != "":
		return why, permanent
	case m < 0:
		return "is not ready", permanent
	case tooSmall:
		return "cannot hold " + list(w.SlicesPerNode()), permanent
	case w.HetJob != 0:
		return fmt.Sprintf(
			"could run the job, but all components of het job %d start together, each on its own node", w.HetJob,
		), permanent
	}
	return fmt.Sprintf("could be one of the %d nodes that the job needs", w.NumNodes), permanent
}

// complete reports whether a member's published state shows everything that its GPUs could hold for a job. The state
// leaves out GPUs with problems, and full GPUs while a GPU cannot leave MIG mode.
func (v *View) complete(member int, w slurm.Waiting) bool {
	return !slices.ContainsFunc(w.SlicesPerNode(), func(g slurm.GRES) bool { return g.Type == mig.Full }) &&
		!slices.ContainsFunc(v.Nodes[member], func(g int) bool { return v.Pool.GPU(g).Model == nil })
}

// unreadyComponent returns another component of w's het job that could not start even if its slices were offered and
// that therefore prevents w from starting. It returns nil if all other components could start.
func unreadyComponent(snapshot Snapshot, w slurm.Waiting) *slurm.Waiting {
	for k := range snapshot.Queue.Waiting {
		o := &snapshot.Queue.Waiting[k]
		if w.HetJob != 0 && o.HetJob == w.HetJob && o.ID != w.ID && !snapshot.ready(*o) {
			return o
		}
	}
	return nil
}

// components returns the beginning of a sentence about components of a het job that have ended, for example "job 7+0
// has" or "jobs 7+0, 7+1 have".
func components(het uint32, ids []uint32) string {
	text := make([]string, len(ids))
	for k, id := range ids {
		text[k] = ref(slurm.Job{ID: id, HetJob: het})
	}
	if len(ids) == 1 {
		return "job " + text[0] + " has"
	}
	return "jobs " + strings.Join(text, ", ") + " have"
}

// notBefore returns a phrase that gives the earliest time at which slurmctld would start the job, or "" if that time
// has passed.
func notBefore(w slurm.Waiting, now time.Time) string {
	if !w.Job.Eligible.After(now) {
		return ""
	}
	return " (not before " + w.Job.Eligible.Format(time.DateTime) + ")"
}
