package plan

import (
	"encoding/json"
	"slices"
	"time"

	"caelum/internal/eligible"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/slurm"
	"caelum/internal/tags"
)

// nodeSets contains the fields of an offer.Job that setNodes sets.
type nodeSets struct {
	alternatives               []string
	eligible, deferred, closed []int
	readyAt, freedAt           map[int]float64
}

// setNodes sets the members on which a job can run. held is the return value of heldOn. Jobs with equal requests share
// the sets, because a plan for many jobs and nodes would otherwise spend most of its time here.
func (v *View) setNodes(job *offer.Job, w slurm.Waiting, held map[string]map[string]int) {
	key, ok := v.nodesKey(job, w)
	if !ok {
		v.findNodes(job, w, held)
		return
	}
	same, known := v.nodeSets[key]
	if !known {
		v.findNodes(job, w, held)
		same = nodeSets{job.Wants[0].Alternatives, job.EligibleNodes, job.DeferredNodes, job.NoOfferNodes, job.ReadyAt,
			job.FreedAt}
		if v.nodeSets == nil {
			v.nodeSets = map[string]nodeSets{}
		}
		v.nodeSets[key] = same
	}
	job.Wants[0].Alternatives = same.alternatives
	job.EligibleNodes, job.DeferredNodes, job.NoOfferNodes = same.eligible, same.deferred, same.closed
	job.ReadyAt, job.FreedAt = same.readyAt, same.freedAt
}

// nodesKey returns a text that is equal for two jobs only if findNodes returns the same for both. It contains every
// field of the job except those that findNodes does not use. findNodes uses LastSchedEval only if the reason is
// Resources. ok is false if JSON cannot represent the job.
func (v *View) nodesKey(job *offer.Job, w slurm.Waiting) (key string, ok bool) {
	sized := tags.Sized(w.Job)
	paused := v.paused[w.UID]
	w.ID, w.ArrayJob, w.ArrayTask, w.Elements, w.HetJobs = 0, 0, "", 0, nil
	w.Name, w.User, w.Account, w.QOS, w.UID = "", "", "", "", 0
	w.Priority, w.Nice, w.Restarts, w.TimeLimit = 0, 0, 0, 0
	w.Submit, w.Eligible, w.Start, w.End = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if w.Reason != "Resources" {
		w.LastSchedEval = time.Time{}
	}
	w.AdminComment, w.Comment = "", ""
	// Users choose some of the texts. JSON quotes them, so that the key shows where each text ends.
	text, err := json.Marshal([]any{sized, paused, job.Nodes, job.Wants[0].Profile, job.Wants[0].Needed(), w})
	return string(text), err == nil
}

// findNodes does the work of setNodes for one job.
func (v *View) findNodes(job *offer.Job, w slurm.Waiting, held map[string]map[string]int) {
	sized := tags.Sized(w.Job)
	if sized {
		job.Wants[0].Alternatives = v.equivalentProfiles(job.Wants[0].Needed())
	}
	for k, n := range v.Members {
		if !eligible.Accepts(n, w) || sized && v.forgotten(k, job.Wants[0].Profile, held[n.Name]) {
			continue
		}
		job.EligibleNodes = append(job.EligibleNodes, k)
		if eligible.DeferReason(n, w, v.since[k]) != "" {
			job.DeferredNodes = append(job.DeferredNodes, k)
			v.setLacking(job, w, k)
		}
	}
	if w.NumNodes > 1 {
		v.oneAlternative(job, w.Features)
	}
}

// oneAlternative restricts a job on several nodes to the members that satisfy one alternative of the job's constraint
// ([a|b]). oneAlternative prefers the alternative with the most members on which the job could start now. If several
// alternatives are equal, oneAlternative chooses the alternative with the most members on which the job could run.
func (v *View) oneAlternative(job *offer.Job, c slurm.Constraint) {
	var best []int
	most := 0
	for k := range c.AnyOf {
		has := slices.DeleteFunc(
			slices.Clone(job.EligibleNodes),
			func(m int) bool { return !eligible.MeetsAlternative(c, k, v.Members[m].Features) },
		)
		later := 0
		for _, m := range job.DeferredNodes {
			if slices.Contains(has, m) {
				later++
			}
		}
		if rank := (len(has)-later)*(len(v.Members)+1) + len(has); rank > most && len(has) >= job.Nodes {
			best, most = has, rank
		}
	}
	if len(c.AnyOf) > 0 {
		other := func(m int) bool { return !slices.Contains(best, m) }
		job.EligibleNodes = best
		job.DeferredNodes = slices.DeleteFunc(job.DeferredNodes, other)
		job.NoOfferNodes = slices.DeleteFunc(job.NoOfferNodes, other)
	}
}

// setNodesWithoutSlices sets the members on which a component without slices may start. In slurmctld's order of nodes,
// all of these members precede the first node outside the plan on which the component could start now.
func (v *View) setNodesWithoutSlices(job *offer.Job, w slurm.Waiting, nodes []slurm.Node) {
	job.EligibleNodes = []int{}
	for _, n := range nodes {
		if !eligible.Accepts(n, w) {
			continue
		}
		later := eligible.DeferReason(n, w, time.Time{}) != ""
		switch k := v.Member(n.Name); {
		case k >= 0:
			job.EligibleNodes = append(job.EligibleNodes, k)
			if later {
				job.DeferredNodes = append(job.DeferredNodes, k)
			}
		case !later:
			job.OutsideCluster = true
			return
		}
	}
}

// equivalentProfiles returns the names of the profile's equivalent profiles on the other GPU models of the cluster.
func (v *View) equivalentProfiles(profile string) (names []string) {
	seen := map[*mig.Model]bool{}
	for g := range v.Pool.Len() {
		b := v.Pool.GPU(g).Model
		if b == nil || seen[b] {
			continue
		}
		seen[b] = true
		if name, ok := b.EquivalentProfile(profile, v.Pool.GPU(g).Offerable); ok && name != profile &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// forgotten reports whether slurmctld's used count of a profile on a member is lower than the number of slices of the
// profile that jobs hold on the member. The result is always false for a profile of the member's own GPU model. When
// slurmctld restarts, slurmctld loses the used counts of types that slurm.conf does not list for the node. When a job
// that holds slices of a lost type ends, slurmctld subtracts these slices from the used count of other jobs (22.05.8).
// Until the counts agree again, the member offers no further slices under the name of the profile.
func (v *View) forgotten(member int, profile string, held map[string]int) bool {
	for _, g := range v.Nodes[member] {
		if b := v.Pool.GPU(g).Model; b != nil {
			if _, own := b.ProfileIndex(profile); own {
				return false
			}
		}
	}
	used := 0
	for _, g := range v.Members[member].GresUsed {
		if g.Name == "mig" && g.Type == profile {
			used += g.Count
		}
	}
	return used < held[profile]
}

// heldOn returns the number of gres/mig slices that jobs hold, by node and type, according to slurmctld's job records.
func heldOn(jobs []slurm.Job) map[string]map[string]int {
	held := map[string]map[string]int{}
	for _, j := range jobs {
		if !j.Holds() {
			continue
		}
		for _, n := range j.Nodes {
			if held[n] == nil {
				held[n] = map[string]int{}
			}
			for _, g := range j.SlicesPerNode() {
				held[n][g.Type] += g.Count
			}
		}
	}
	return held
}
