package plan

import (
	"cmp"
	"math"
	"slices"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// running is a slice on a node that, according to slurmctld, is allocated to a job.
type running struct {
	profile string  // the profile that the job requested
	end     float64 // expected end of the job in Unix seconds; +Inf if unknown
}

// runningOn returns the slices of the jobs on a node, ordered by the jobs' expected ends.
func runningOn(jobs []*slurm.Job, now time.Time) (on []running) {
	for _, j := range jobs {
		end := math.Inf(1)
		if at := tags.ExpectedEnd(*j, 1, now); !at.IsZero() {
			end = float64(at.Unix())
		}
		for _, g := range j.SlicesPerNode() {
			on = append(on, slices.Repeat([]running{{g.Type, end}}, min(g.Count, maxSlices))...)
		}
	}
	slices.SortStableFunc(on, func(a, b running) int { return cmp.Compare(a.end, b.end) })
	return on
}

// maxSlices is the maximum number of slices that runningOn returns for one job on one node, because users can request
// any number. Even 16 GPUs have at most 112 slices.
const maxSlices = 112

// fillEnds sets the expected ends of a node's busy slices from the jobs on the node if the node's published state does
// not show the ends. An agent does not publish the ends if users are not permitted to see each other's jobs. If several
// slices have the same profile, fillEnds cannot determine which of them belongs to which job, so it assigns the ends in
// order, first by GPU and then by start. Jobs that hold larger slices than they requested are matched with the
// remaining slices.
func fillEnds(gpus []place.GPU, jobs []running) {
	for _, g := range gpus {
		if slices.ContainsFunc(g.Ends, func(end float64) bool { return !math.IsInf(end, 1) }) {
			return
		}
	}
	jobs = slices.Clone(jobs)
	assign := func(matches func(r running, g *place.GPU, profile string) bool) {
		for k := range gpus {
			g := &gpus[k]
			for i := range g.Busy.Indices() {
				at := slices.IndexFunc(jobs, func(r running) bool { return matches(r, g, g.Model.ProfileOf(i)) })
				if at >= 0 && (g.Ends == nil || math.IsInf(g.Ends[i], 1)) {
					g.Expect(i, jobs[at].end)
					jobs = slices.Delete(jobs, at, at+1)
				}
			}
		}
	}
	assign(func(r running, g *place.GPU, profile string) bool {
		name, ok := g.Model.EquivalentProfile(r.profile, g.Offerable)
		return r.profile == profile || ok && name == profile
	})
	assign(func(running, *place.GPU, string) bool { return true })
}
