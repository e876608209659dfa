package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// fullGPU returns an A100 with seven 1g.5gb slices whose jobs, with the ids 1 to 7, end in an hour.
func fullGPU(t *testing.T, at time.Time) (place.GPU, map[offer.Spot]uint32) {
	t.Helper()
	m, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	g := place.GPU{Model: m.Select(mig.Plain)}
	for p := range g.Model.Profiles {
		g.Offerable |= g.Model.OfProfile(p)
	}
	holders := map[offer.Spot]uint32{}
	for start := range 7 {
		i, _ := g.Model.Placement("1g.5gb", start)
		g.Hold(i, float64(at.Unix()+3600))
		holders[offer.Spot{Placement: i}] = uint32(start + 1)
	}
	return g, holders
}

// TestHolders checks that the jobs of all slices can be read again, and that invalid entries have no effect.
func TestHolders(t *testing.T) {
	g, holders := fullGPU(t, time.Unix(1e9, 0))
	gpus := []place.GPU{g, {}}
	extra := WithJobs("other=1", gpus, holders)
	if got := holdersIn(extra, gpus); !maps.Equal(got, holders) {
		t.Errorf("%q: %v, want %v", extra, got, holders)
	}
	if got := WithJobs(extra, gpus, nil); got != "other=1" {
		t.Errorf("%q remains", got)
	}
	for _, text := range []string{"", "x", "0:1g.5gb@0", "0:1g.5gb@0/x", "1:1g.5gb@0/1", "2:1g.5gb@0/1",
		"-1:1g.5gb@0/1", "0:9g.5gb@0/1", "0:7g.40gb@0/1", "0:1g.5gb@0/-1", "0:1g.5gb@0/99999999999"} {
		if got := holdersIn(jobsPrefix+text, gpus); len(got) > 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestRoomOfPreemptor checks that the plan keeps the slices of preempted jobs for the preemptor: after some of them
// have ended, an earlier job in the queue gets no slices of the same GPU, unless it ends before the grace time.
func TestRoomOfPreemptor(t *testing.T) {
	at := time.Unix(1763790000, 0)
	for _, c := range []struct {
		what   string
		end    int64 // the end of the grace time, in seconds from now, or 0
		tag    string
		limit  time.Duration
		placed bool
		due    bool // whether the other job has the same priority and is urgent
	}{
		{"preempted", 0, "caelum:preempts=0:1763789990:1", time.Hour, false, false},
		{"an urgent job", 0, "caelum:preempts=0:1763789990:1", time.Hour, false, true},
		{"grace time", 600, "caelum:preempts=0:1763789990:1", time.Hour, false, false},
		{"a short job in the grace time", 600, "caelum:preempts=0:1763789990:1", 5 * time.Minute, true, false},
		{"no preemptor", 0, "", time.Hour, true, false},
		{"the preemptor did not start", 0, "caelum:preempts=0:1763789000:1", time.Hour, true, false},
	} {
		g, holders := fullGPU(t, at)
		var jobs []slurm.Job
		for _, id := range slices.Sorted(maps.Values(holders)) {
			j := slurm.Job{ID: id, State: "RUNNING", Nodes: []string{"n1"}, NumNodes: 1, Partition: "gpu", Start: at,
				End: at.Add(time.Hour), PerNode: slurm.GRESList{{Name: "mig", Type: "1g.5gb", Count: 1}}}
			if c.tag != "" {
				end := c.end
				if end > 0 {
					end += at.Unix()
				}
				j.AdminComment = fmt.Sprintf("caelum:preempted=9:0:%d", end)
			}
			jobs = append(jobs, j)
		}
		jobs = jobs[:6] // the last job has ended, and its agent has released the slice
		last, _ := g.Model.Placement("1g.5gb", 6)
		g.Busy = g.Busy.Without(last)
		delete(holders, offer.Spot{Placement: last})
		waiting := func(id uint32, profile, tag string, limit time.Duration) slurm.Waiting {
			return slurm.Waiting{Elements: 1, Job: &slurm.Job{ID: id, State: "PENDING", Reason: "Resources",
				Priority: uint64(100 - id), Partition: "gpu", NumNodes: 1, TimeLimit: limit, AdminComment: tag,
				PerNode: slurm.GRESList{{Name: "mig", Type: profile, Count: 1}}}}
		}
		queue := []slurm.Waiting{waiting(8, "1g.5gb", "", c.limit), waiting(9, "7g.40gb", c.tag, time.Hour)}
		if c.due {
			queue[0].Priority, queue[0].Deadline = queue[1].Priority, at.Add(c.limit+time.Minute)
			queue[1].Submit, queue[1].Eligible = at, at
		}
		for _, w := range queue {
			jobs = append(jobs, *w.Job)
		}
		extra := WithState("", Text(State{GPUs: []place.GPU{g}}))
		v := New(Snapshot{At: at, Queue: slurm.Queue{All: jobs, Waiting: queue}, Nodes: []slurm.Node{{
			Name: "n1", States: []string{"MIXED"}, Partitions: []string{"gpu"},
			Gres:  slurm.GRESList{{Name: "gpu", Type: "a100", Count: 7}},
			Extra: WithJobs(extra, []place.GPU{g}, holders),
		}}}, Settings{Policy: place.Reach, Tightest: true}, nil)
		p := v.Plan()
		k := slices.IndexFunc(v.Jobs, func(j *offer.Job) bool { return j.ID == 8 })
		if got := p.Spots[k] != nil; got != c.placed {
			t.Errorf("%s: the other job has slices: %v, want %v", c.what, got, c.placed)
		}
	}
}
