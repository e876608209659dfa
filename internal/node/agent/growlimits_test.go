package agent

import (
	"context"
	"testing"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestUserShrinksGrownJob lets a user set a grown job's request back to the smaller profile. If slurmctld can replace
// profiles, the job must not get the larger slice, because limits would not apply to it, and the agents must replace
// the profile again.
func TestUserShrinksGrownJob(t *testing.T) {
	for version, granted := range map[string]bool{"22.05.8": true, "24.11.5": false} {
		g := newGrowing(t, version)
		id := g.submit(growingJob("1g.5gb", "oom"))
		g.runs(id)
		g.fails(id, 4700)
		g.submit(job(1, "1g.5gb:1")) // so that the node offers a slice of the smaller profile
		g.fake.Advance(3 * time.Minute)
		g.publish()
		g.publish()
		smaller := slurm.GRESList{{Name: "gpu", Count: 1}, {Name: "mig", Type: "1g.5gb", Count: 1}}
		if err := g.fake.SetJobGRES(context.Background(), id, smaller); err != nil {
			t.Fatal(err)
		}
		g.fake.Tick()
		g.prologs.Wait()
		if l := g.lease(id); (len(l.Slices) > 0) != granted {
			t.Errorf("%s: the job has the slices %+v, error %q", version, l.Slices, l.Error)
		}
	}
}

// TestGrowths counts a job's growths from its tags and its stored runs.
func TestGrowths(t *testing.T) {
	run := func(job uint32, profile, end string) predict.Run {
		return predict.Run{Job: job, Profile: profile, End: end}
	}
	last := run(1, "1g.10gb", "")
	for _, c := range []struct {
		grown   string
		earlier []predict.Run
		want    int
	}{
		{"", nil, 0},
		{"1g.5gb:oom:4700", nil, 1},
		// The second growth did not get as far as the requeue.
		{"1g.5gb:oom:4700,1g.10gb:forecast:12000", nil, 1},
		// The agent could not write the tags.
		{"", []predict.Run{run(1, "1g.5gb", predict.EndOOM), run(1, "1g.5gb", predict.EndOOM)}, 2},
		{"1g.5gb:oom:4700", []predict.Run{run(1, "1g.5gb", predict.EndOOM)}, 1},
		{"", []predict.Run{run(2, "1g.5gb", predict.EndOOM), run(1, "1g.5gb", "")}, 0},
	} {
		j := slurm.Job{AdminComment: tags.Grown + c.grown}
		if got := growths(j, append(c.earlier, last)); got != c.want {
			t.Errorf("%q and %d runs: %d growths, want %d", c.grown, len(c.earlier), got, c.want)
		}
	}
}

// TestGrowOnLostGPU checks that a job does not grow on a GPU that the agent no longer manages.
func TestGrowOnLostGPU(t *testing.T) {
	g := newGrowing(t, "22.05.8")
	id := g.submit(growingJob("1g.5gb", "oom"))
	g.runs(id)
	g.agent.node.Lock()
	card := g.agent.node.Cards[g.agent.node.Leases[id].Slices[0].GPU]
	model := card.Model
	card.Model = nil
	lease := *g.agent.node.Leases[id]
	g.agent.node.Unlock()
	j, err := g.fake.Job(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	last := []predict.Run{{Job: id, Profile: "1g.5gb"}}
	if larger, err := g.agent.larger(j, lease, last, predict.Need{PeakMiB: 9000}); err == nil {
		t.Errorf("the job grows to %s", larger)
	}
	g.agent.node.Lock()
	card.Model = model
	g.agent.node.Unlock()
	if larger, err := g.agent.larger(j, lease, last, predict.Need{PeakMiB: 9000}); err != nil || larger != "1g.10gb" {
		t.Errorf("with the GPU: %s, %v", larger, err)
	}
}
