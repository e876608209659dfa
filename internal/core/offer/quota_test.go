package offer

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// drawShared returns random nodes whose GPUs may be full or cut, and jobs for full GPUs and for slices. Some GPUs can
// only be full, and some can only be cut.
func drawShared(t *rapid.T) (nodes [][]place.GPU, jobs []*Job) {
	b := rapid.SampledFrom([]string{"A30-24GB", "H100-80GB"}).Draw(t, "board")
	m, err := mig.ModelByName(b)
	if err != nil {
		t.Fatal(err)
	}
	cut := m.Select(mig.Plain)
	m = cut.WithFull(80 << 10)
	full := m.Select(func(p mig.Profile) bool { return p.Name == mig.Full })
	ends := rapid.SampledFrom([]float64{10, 100, 1000, math.Inf(1)})
	for range rapid.IntRange(1, 3).Draw(t, "nodes") {
		var gpus []place.GPU
		for range rapid.IntRange(1, 4).Draw(t, "gpus") {
			g := place.GPU{Model: m, Offerable: everything(m)}
			layouts := append(m.Layouts(), 0, 0, m.Full(), m.Full())
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				g, layouts = place.GPU{Model: full, Offerable: everything(full)}, full.Layouts()
			case 1:
				g, layouts = place.GPU{Model: cut, Offerable: everything(cut)}, cut.Layouts()
			}
			g.NVLink = rapid.IntRange(0, 2).Draw(t, "group")
			l := rapid.SampledFrom(layouts).Draw(t, "layout")
			for i := range l.Indices() {
				if rapid.IntRange(0, 3).Draw(t, "busy") == 0 {
					g.Hold(i, ends.Draw(t, "end"))
				} else {
					g.Idle = g.Idle.With(i)
				}
			}
			gpus = append(gpus, g)
		}
		nodes = append(nodes, gpus)
	}
	for k := range rapid.IntRange(1, 8).Draw(t, "jobs") {
		j := &Job{ID: uint32(k + 1), RunTime: ends.Draw(t, "runs")}
		j.TimeLimit = j.RunTime
		w := Want{Profile: mig.Full, Count: rapid.IntRange(1, 4).Draw(t, "several")}
		if rapid.Bool().Draw(t, "slice") {
			w = Want{Profile: rapid.SampledFrom(m.Profiles[:len(m.Profiles)-1]).Draw(t, "profile").Name, Count: 1}
		}
		j.Wants = []Want{w}
		jobs = append(jobs, j)
	}
	return nodes, jobs
}

// needed returns a lower bound for the number of GPUs that the waiting jobs need for slices. It counts only the first
// job for each profile, because Make may finally withdraw the offers for the others (filterByQueueOrder). All of
// drawShared's GPUs that can be cut have the slices' profiles.
func needed(gpus []place.GPU, jobs []*Job, plan Plan) (need float64) {
	first := map[string]bool{mig.Full: true}
	for k, j := range jobs {
		profile := j.Wants[0].Profile
		seen := first[profile]
		first[profile] = true
		cut := slices.IndexFunc(gpus, func(g place.GPU) bool {
			_, ok := g.Model.ProfileIndex(profile)
			return ok
		})
		if plan.Spots[k] == nil && !seen && cut >= 0 {
			m := gpus[cut].Model
			p, _ := m.ProfileIndex(profile)
			need += float64(m.Profiles[p].Size) / float64(m.Grid)
		}
	}
	return need
}

// excess returns a waiting job for a slice that could start on a GPU that the plan makes full beyond share, or 0 if
// there is none. If share is 0, a planned job for n full GPUs is beyond it only if the waiting jobs need at least n
// GPUs for slices. excess computes the number of full GPUs, the free units and the jobs' needs without using this
// package's functions.
func excess(nodes [][]place.GPU, jobs []*Job, plan Plan, share float64, strict bool) uint32 {
	gpus := slices.Concat(nodes...)
	both, full := 0, 0
	for _, g := range gpus {
		if g.Offerable.Count() > 1 && g.Offerable&g.Model.Full() != 0 {
			both++
			if g.Busy == g.Model.Full() {
				full++
			}
		}
	}
	need := needed(gpus, jobs, plan)
	beyond := map[int]bool{} // the GPUs of the planned jobs for full GPUs
	for k, spots := range plan.Spots {
		for _, s := range spots {
			g := gpus[s.GPU]
			if jobs[k].Wants[0].Profile == mig.Full && g.Offerable.Count() > 1 {
				full++
				beyond[s.GPU] = share > 0 || need >= float64(len(spots))
			}
		}
	}
	if full <= int(math.Ceil(share*float64(both)-1e-9)) {
		return 0
	}
	for k, j := range jobs {
		profile := j.Wants[0].Profile
		if profile == mig.Full || plan.Spots[k] != nil {
			continue
		}
		// slurmctld gives a slice to the first job that requests the profile. In a strict order, the job also waits
		// for every earlier job that waits for slices and, with a share of 0, for every earlier job that waits at
		// all.
		if slices.ContainsFunc(jobs[:k], func(o *Job) bool {
			waits := plan.Spots[slices.Index(jobs, o)] == nil && (share == 0 || o.Wants[0].Profile != mig.Full)
			return o.Wants[0].Profile == profile || strict && waits
		}) {
			continue
		}
		for n, is := range beyond {
			if !is {
				continue
			}
			g := gpus[n]
			reserved := plan.Reserved != nil && plan.Reserved.Job != k && j.TimeLimit > plan.Reserved.At &&
				slices.ContainsFunc(plan.Reserved.Spots, func(s Spot) bool { return s.GPU == n })
			plain := placetest.PlainGPUOf(g)
			for _, x := range placetest.Every(g.Model) {
				i, _ := g.Model.Placement(g.Model.Profiles[x.Profile].Name, x.From)
				if !reserved && g.Model.Profiles[x.Profile].Name == profile && g.Offerable.Has(i) &&
					plain.Fits(plain.Busy, x) {
					return j.ID
				}
			}
		}
	}
	return 0
}

// TestQuota checks that a plan never makes more GPUs full than the quota allows while a job waits for a slice that
// could start on these GPUs.
func TestQuota(t *testing.T) {
	denied, prevented, beyond := 0, 0, 0
	check := func(t *rapid.T) {
		nodes, jobs := drawShared(t)
		share := rapid.SampledFrom([]float64{0, 0.01, 0.25, 0.3, 0.5, 0.75}).Draw(t, "share")
		strict := rapid.Bool().Draw(t, "strict")
		policy := rapid.SampledFrom([]place.Policy{place.Reach, place.Lifetime{}}).Draw(t, "policy")
		c := NewCluster(policy, nodes...)
		c.WholeShare = 1
		if excess(nodes, jobs, Make(c, jobs, strict), share, strict) != 0 {
			prevented++
		}
		c.WholeShare = share
		plan := Make(c, jobs, strict)
		if err := plan.Check(slices.Concat(nodes...)); err != nil {
			t.Fatal(err)
		}
		if id := excess(nodes, jobs, plan, share, strict); id != 0 {
			t.Fatalf("job %d waits for a slice of a full GPU beyond the share %v", id, share)
		}
		if plan.OverQuota != nil {
			denied++
		}
		planned := 0
		for k, spots := range plan.Spots {
			if jobs[k].Wants[0].Profile == mig.Full {
				planned += len(spots)
			}
			if plan.OverQuota != nil && plan.OverQuota[k] && (spots != nil || jobs[k].Wants[0].Profile != mig.Full) {
				t.Fatalf("job %d is denied by the quota, and has %v", jobs[k].ID, spots)
			}
		}
		if planned > c.newQuota(jobs).limit {
			beyond++
		}
	}
	for range 5 { // the quota rarely changes a random plan
		rapid.Check(t, check)
	}
	if !t.Failed() && !testing.Short() && (denied == 0 || prevented == 0 || beyond == 0) {
		t.Errorf("%d denied, %d prevented, %d beyond the quota because no job could use the GPUs: "+
			"the cases do not test enough", denied, prevented, beyond)
	}
}

// TestNoQuotaWithoutSlices checks that the quota changes no plan if no job waits for slices or, with a share of 0, if
// all jobs for full GPUs have waited long enough.
func TestNoQuotaWithoutSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, jobs := drawShared(t)
		share := rapid.SampledFrom([]float64{0, 0.01, 0.5, 1}).Draw(t, "share")
		if rapid.Bool().Draw(t, "waited") && share == 0 {
			for _, j := range jobs {
				j.Waited = MaxDeferral
			}
		} else if share < 1 {
			jobs = slices.DeleteFunc(jobs, func(j *Job) bool { return j.Wants[0].Profile != mig.Full })
		}
		strict := rapid.Bool().Draw(t, "strict")
		c := NewCluster(place.Lifetime{}, nodes...)
		c.WholeShare = 1
		want := Make(c, jobs, strict)
		c.WholeShare = share
		if got := Make(c, jobs, strict); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// TestQuotaKeepsOrder checks the order of the jobs for full GPUs and for slices on two nodes with two GPUs each.
func TestQuotaKeepsOrder(t *testing.T) {
	m, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	m = m.Select(mig.Plain).WithFull(80 << 10)
	gpu := func() place.GPU { return place.GPU{Model: m, Offerable: everything(m)} }
	job := func(id uint32, profile string, count int) *Job {
		return &Job{ID: id, Wants: []Want{{Profile: profile, Count: count}}, RunTime: 100, TimeLimit: 100}
	}
	whole := func(id uint32) *Job { return job(id, "7g.80gb", 1) }
	waited := func(j *Job) *Job {
		j.Waited = MaxDeferral
		return j
	}
	stops := func(j *Job) *Job { // other jobs are stopped for it
		j.First = true
		return j
	}
	late := func(j *Job, waited float64) *Job { // its latest start is in 30 s
		j.Waited, j.LatestStart, j.Deadline = waited, 30, 130
		return j
	}
	for _, c := range []struct {
		what     string
		share    float64
		jobs     []*Job
		served   []uint32
		reserved uint32
	}{
		{"a pair exceeds one GPU, and starts when all jobs for slices have slices",
			0.25, []*Job{job(1, mig.Full, 2), whole(2), whole(3)}, []uint32{1, 2, 3}, 0},
		{"the slices come first",
			0.25, []*Job{job(1, mig.Full, 2), whole(2), whole(3), whole(4), whole(5)}, []uint32{2, 3, 4, 5}, 1},
		{"a pair of the quota's size comes first",
			0.5, []*Job{job(1, mig.Full, 2), whole(2), whole(3), whole(4)}, []uint32{1, 2, 3}, 4},
		{"a second pair does not overtake the first",
			0.5, []*Job{job(1, mig.Full, 1), job(2, mig.Full, 2), job(3, mig.Full, 1), whole(4), whole(5), whole(6)},
			[]uint32{1, 4, 5, 6}, 2},
		{"a pair larger than the quota does not block a smaller job",
			0.25, []*Job{job(1, mig.Full, 2), job(2, mig.Full, 1), whole(3), whole(4), whole(5)},
			[]uint32{2, 3, 4, 5}, 1},
		{"the waiting slices need fewer GPUs than the pair",
			0, []*Job{job(1, mig.Full, 2), whole(2), job(3, "4g.40gb", 1), job(4, "2g.20gb", 1)},
			[]uint32{1, 2, 3, 4}, 0},
		{"the waiting slices need as many GPUs as the pair",
			0, []*Job{job(1, mig.Full, 2), whole(2), whole(3), whole(4)}, []uint32{2, 3, 4}, 1},
		{"a pair that has waited long enough",
			0, []*Job{waited(job(1, mig.Full, 2)), whole(2), whole(3), whole(4)}, []uint32{1, 2, 3}, 4},
		{"a pair for which jobs are stopped",
			0, []*Job{stops(job(1, mig.Full, 2)), whole(2), whole(3), whole(4)}, []uint32{1, 2, 3}, 4},
		{"the last chance of a pair",
			0, []*Job{late(job(1, mig.Full, 2), urgency), whole(2), whole(3), whole(4)}, []uint32{1, 2, 3}, 4},
		{"a pair that was submitted shortly before its latest start",
			0, []*Job{late(job(1, mig.Full, 2), urgency-1), whole(2), whole(3), whole(4)}, []uint32{2, 3, 4}, 1},
		{"the last chance of a pair that exceeds the share",
			0.25, []*Job{late(job(1, mig.Full, 2), urgency), whole(2), whole(3), whole(4), whole(5)},
			[]uint32{2, 3, 4, 5}, 1},
	} {
		cl := NewCluster(place.Lifetime{}, []place.GPU{gpu(), gpu()}, []place.GPU{gpu(), gpu()})
		cl.WholeShare = c.share
		plan := Make(cl, c.jobs, false)
		got := served(c.jobs, plan)
		if slices.Sort(got); !slices.Equal(got, c.served) {
			t.Errorf("%s: served %v, want %v", c.what, got, c.served)
		}
		if r := plan.Reserved; (r == nil) != (c.reserved == 0) || r != nil && c.jobs[r.Job].ID != c.reserved {
			t.Errorf("%s: reserved %+v, want for job %d", c.what, r, c.reserved)
		}
	}
}
