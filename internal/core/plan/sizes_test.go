package plan

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

var withLifetime, withReach = Settings{Policy: place.Lifetime{}}, Settings{Policy: place.Reach}

// TestSizesOfJob checks the larger profiles of jobs that request 3g.20gb, and the relative run times on these profiles.
func TestSizesOfJob(t *testing.T) {
	a100, h100 := a100(t), h100(t)
	sized := tags.Size + "3g.20gb"
	for _, c := range []struct {
		name    string
		comment string
		change  func(*slurm.Waiting)
		kinds   []place.GPU
		want    string
	}{
		{"the user requests the profile", "", nil, []place.GPU{a100}, ""},
		{"unknown busy share", sized, nil, []place.GPU{a100}, "4g.20gb 0.93 7g.40gb 0.72"},
		{"invalid busy share", sized + " caelum:busy=101", nil, []place.GPU{a100}, "4g.20gb 0.93 7g.40gb 0.72"},
		{"always busy", sized + " caelum:busy=100", nil, []place.GPU{a100}, "4g.20gb 0.88 7g.40gb 0.47"},
		{"never busy", sized + " caelum:busy=0", nil, []place.GPU{a100}, "4g.20gb 1.00 7g.40gb 1.00"},
		{"another GPU model", sized, nil, []place.GPU{h100}, "4g.40gb 0.93 7g.80gb 0.72"},
		{"two GPU models", sized, nil, []place.GPU{a100, h100}, "4g.20gb 0.93 7g.40gb 0.72 4g.40gb 0.93 7g.80gb 0.72"},
		{"sizing: tightest", sized, nil, nil, ""},
		{"two slices", sized, func(w *slurm.Waiting) { w.PerNode[0].Count = 2 }, []place.GPU{a100}, ""},
		{"two nodes", sized, func(w *slurm.Waiting) { w.NumNodes = 2 }, []place.GPU{a100}, ""},
		{"a component of a het job", sized, func(w *slurm.Waiting) { w.HetJob = 7 }, []place.GPU{a100}, ""},
	} {
		w := waits(1, "3g.20gb", 1, 1)
		w.AdminComment = c.comment
		if c.change != nil {
			c.change(&w)
		}
		var got []string
		for _, s := range Sizes(*w.Job, c.kinds) {
			got = append(got, fmt.Sprintf("%s %.2f", s.Profile, s.Takes))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestSettings checks the values of the `policy`, `sizing` and `whole_share` configuration keys.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		policy, sizing string
		share          float64
		text, err      string
	}{
		{"lifetime", "adaptive", 0, "lifetime,adaptive", ""},
		{"reach", "tightest", 0.25, "reach,tightest,0.25", ""},
		{"none", "adaptive", 1, "", "policy: unknown placement policy"},
		{"lifetime", "largest", 1, "", `sizing: "largest" is not adaptive or tightest`},
		{"lifetime", "adaptive", 1, "lifetime,adaptive,1", ""},
		{"lifetime", "adaptive", -0.5, "", "whole_share: -0.5 is not from 0 to 1"},
		{"lifetime", "adaptive", 1.5, "", "whole_share: 1.5 is not from 0 to 1"},
		{"lifetime", "adaptive", math.NaN(), "", "whole_share: NaN is not from 0 to 1"},
	} {
		s, err := ParseSettings(c.policy, c.sizing, c.share)
		tightest := c.sizing == "tightest"
		if c.err == "" && (err != nil || s.Tightest != tightest || s.WholeShare != c.share || s.Text != c.text) ||
			c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%s, %s: %+v, %v", c.policy, c.sizing, s, err)
		}
	}
}

func h100(t *testing.T) place.GPU {
	b := model(t, "H100-80GB")
	return place.GPU{Model: b, Offerable: plain(b)}
}

// TestExplainLarger checks the explanations of a job that gets a larger slice than requested, and of one that waits
// for a larger slice. Both run for an hour on the requested 1g.5gb and for 8m0s on a 7g.40gb.
func TestExplainLarger(t *testing.T) {
	wants := waits(1, "1g.5gb", 1, 1)
	wants.AdminComment = tags.Size + "1g.5gb " + tags.RunTime + "3600 " + tags.Busy + "100"
	const runs = ", 7g.40gb, on which the job is expected to run for 8m0s"
	checkExplanations(t, []explainCase{
		{"an idle GPU", []slurm.Node{node(t, "n1", a100(t))}, []slurm.Waiting{wants}, nil, Planned,
			[]string{"room for 1g.5gb is free on", "published the offer", "the job gets a larger slice" + runs}},
		{"a GPU that is expected to be free in 100 s", []slurm.Node{node(t, "n1", a100(t, "4g.20gb@0"))},
			[]slurm.Waiting{wants}, nil, First,
			[]string{"room for 1g.5gb is reserved", "the reserved slice is a 7g.40gb",
				"will start later on the larger slice"}},
	})
}

// TestExplainUnplanned checks that the explanation of a job that waits for space names the nodes on which no agent
// runs.
func TestExplainUnplanned(t *testing.T) {
	closed := slurm.Node{Name: "n2", Partitions: []string{"gpu"},
		Gres: []slurm.GRES{{Name: "mig", Type: slurm.ClosedType, Count: 28}}}
	full := node(t, "n1", a100(t, "7g.40gb@0"))
	checkExplanations(t, []explainCase{
		{"the agent of an idle node has stopped", []slurm.Node{full, closed},
			[]slurm.Waiting{waits(1, "1g.5gb", 1, 1)}, nil, First,
			[]string{"no slice can be offered on n2, because no agent publishes offers there"}},
	})
}

// TestArrivals checks that the expected number of submissions follows from the submission times and learned run times
// of all jobs in slurmctld's list, and that jobs without slices do not count.
func TestArrivals(t *testing.T) {
	snapshot := snapshotOf([]slurm.Node{node(t, "n1", a100(t))})
	for k := range 5 {
		j := runs(uint32(k+1), "n1", "1g.5gb", 900)
		j.Submit, j.AdminComment = snapshot.At.Add(time.Duration(k-4)*time.Minute), ""
		switch k {
		case 3:
			j.AdminComment = "caelum:runs=600-700"
		case 4:
			j.PerNode, j.Submit = nil, snapshot.At
		}
		snapshot.Queue.All = append(snapshot.Queue.All, j)
	}
	const want = 3.0 / 240 * 600 // three gaps in four minutes, and a run time of ten minutes
	if v := New(snapshot, withLifetime, nil); math.Abs(v.Arrivals-want) > 1e-9 {
		t.Errorf("%v arrivals, want %v", v.Arrivals, want)
	}
}
