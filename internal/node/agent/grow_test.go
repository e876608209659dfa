package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/node/api"
	"caelum/internal/node/usage/usagetest"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// growing is a world whose jobs' memory on their slices reaches the given peak.
type growing struct {
	*world
	peak float64
}

func newGrowing(t testing.TB, version string) *growing {
	g := &growing{world: newWorld(t, 1, tightest, func(c *config.Config) { c.GrowLimit = 3 })}
	g.fake.SetConfig("SLURM_VERSION", version)
	g.restart()
	return g
}

func a100OrL40S(l *api.Lease) string {
	if mig.IsFraction(l.Slices[0].Profile) {
		return "l40s"
	}
	return "a100"
}

func (g *growing) restart() {
	g.world.stop()
	g.world.start()
	g.agent.runOf = func(id uint32) (predict.Run, bool) {
		g.agent.node.Lock()
		defer g.agent.node.Unlock()
		l := g.agent.node.Leases[id]
		if l == nil || len(l.Slices) == 0 {
			return predict.Run{}, false
		}
		return predict.Run{
			Job: id, Restart: l.Restart, GPUType: a100OrL40S(l), Profile: l.Slices[0].Profile, Slices: len(l.Slices),
			Samples: 9, PeakMiB: g.peak, MedianMiB: g.peak, Seconds: 60, Util: -1,
		}, true
	}
}

// growingJob returns a job for which job_submit.lua has chosen a profile, with the given mode.
func growingJob(profile, mode string) slurm.Job {
	j := job(1, profile+":1")
	j.AdminComment = "JS1:other " + tags.Size + profile + " " + tags.Grow + mode
	return j
}

// runs starts the job with the given id and returns its slice's profile, and the name under which slurmctld counts
// the slice.
func (g *growing) runs(id uint32) (profile, counted string) {
	g.t.Helper()
	g.fake.Advance(3 * time.Minute)
	g.publish() // the agent releases the job
	g.publish()
	g.fake.Tick()
	slice := g.lease(id).Slices[0]
	j, err := g.fake.Job(context.Background(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	return slice.Profile, j.Allocated["n1"].Named("mig")[0].Type
}

// fails ends the job with an exit status other than 0, and returns the job's record after the epilog.
func (g *growing) fails(id uint32, peak float64) slurm.Job {
	g.t.Helper()
	g.peak = peak
	if err := g.fake.Fail(id); err != nil {
		g.t.Fatal(err)
	}
	return g.ends(id)
}

func (g *growing) ends(id uint32) slurm.Job {
	g.t.Helper()
	g.fake.RunEpilogs()
	g.fake.Before(nil)
	j, err := g.fake.Job(context.Background(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	return j
}

// TestGrowAfterFailure lets a job grow twice. Up to Slurm 23.02, slurmctld must count every slice under the requested
// profile. From 23.11 on, slurmctld must count the larger profile.
func TestGrowAfterFailure(t *testing.T) {
	for _, version := range []string{"22.05.8", "24.11.5"} {
		t.Run(version, func(t *testing.T) {
			g := newGrowing(t, version)
			counted := func(profile string) string {
				if version == "22.05.8" {
					return "1g.5gb"
				}
				return profile
			}
			id := g.submit(growingJob("1g.5gb", "oom"))
			for _, step := range []struct{ profile, grown string }{
				{"1g.5gb", "1g.5gb:oom:4700"},
				{"1g.10gb", "1g.10gb:oom:9400"},
				{"3g.20gb", "3g.20gb:oom:18800"},
			} {
				profile, as := g.runs(id)
				if profile != step.profile || as != counted(step.profile) {
					t.Fatalf("the job runs on %s, which slurmctld counts as %s, want %s", profile, as, step.profile)
				}
				j := g.fails(id, 4700*map[string]float64{"1g.5gb": 1, "1g.10gb": 2, "3g.20gb": 4}[profile])
				if as != profile {
					step.grown = strings.TrimSuffix(step.grown, ":1g.5gb") + ":1g.5gb"
				}
				if j.State != "PENDING" || j.Priority != 0 || !tags.Has(j.AdminComment, tags.Held) ||
					!strings.HasSuffix(tags.Value(j.AdminComment, tags.Grown), step.grown) {
					t.Fatalf("after the failure on %s, the job is %s with priority %d and %q, want %s",
						profile, j.State, j.Priority, j.AdminComment, step.grown)
				}
			}
			if profile, _ := g.runs(id); profile != "7g.40gb" {
				t.Fatalf("after three growths, the job runs on %s", profile)
			}
			if j := g.fails(id, 38000); j.State != "FAILED" {
				t.Errorf("after four failures, the job is %s", j.State)
			}
			g.nothingHeld()
		})
	}
}

// down returns a hook that makes every call of a method fail.
func down(op string) func(slurmtest.Call) error {
	return func(c slurmtest.Call) error {
		if c.Op == op {
			return slurm.ErrUnreachable
		}
		return nil
	}
}

// TestStaysFailed checks the jobs that an agent must not requeue after a failure.
func TestStaysFailed(t *testing.T) {
	with := func(change func(*slurm.Job)) slurm.Job {
		j := growingJob("1g.5gb", "oom")
		change(&j)
		return j
	}
	const full = 4700
	for _, c := range []struct {
		what  string
		job   slurm.Job
		peak  float64
		end   func(*slurmtest.Fake, uint32) error
		state string
		limit int
		fault func(slurmtest.Call) error
	}{
		{"memory to spare", growingJob("1g.5gb", "oom"), 2000, nil, "FAILED", 3, nil},
		{"completed", growingJob("1g.5gb", "forecast"), full, (*slurmtest.Fake).End, "COMPLETED", 3, nil},
		{"cancelled", growingJob("1g.5gb", "oom"), full, (*slurmtest.Fake).Cancel, "CANCELLED", 3, nil},
		{"no tag", with(func(j *slurm.Job) { j.AdminComment = tags.Size + "1g.5gb" }), full, nil, "FAILED", 3, nil},
		{"off", growingJob("1g.5gb", "off"), full, nil, "FAILED", 3, nil},
		{"named profile", with(func(j *slurm.Job) { j.AdminComment = tags.Grow + "oom" }), full, nil, "FAILED", 3, nil},
		{"no requeue", with(func(j *slurm.Job) { j.Requeue = false }), full, nil, "FAILED", 3, nil},
		{"srun", with(func(j *slurm.Job) { j.Batch = false }), full, nil, "FAILED", 3, nil},
		{"het job", with(func(j *slurm.Job) { j.HetJob = 1 }), full, nil, "FAILED", 3, nil},
		{"grow_limit 0", growingJob("1g.5gb", "oom"), full, nil, "FAILED", 0, nil},
		{"no answer", growingJob("1g.5gb", "oom"), full, nil, "FAILED", 3, down("Job")},
		{"no requeue possible", growingJob("1g.5gb", "oom"), full, nil, "FAILED", 3, down("RequeueFailed")},
		{"tag lost", growingJob("1g.5gb", "oom"), full, nil, "PENDING", 3, down("SetAdminComment")},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := newGrowing(t, "22.05.8")
			g.agent.cfg.GrowLimit = c.limit
			id := g.submit(c.job)
			g.publish()
			g.fake.Tick()
			g.lease(id)
			g.peak = c.peak
			g.fake.Before(c.fault)
			if c.end == nil {
				c.end = (*slurmtest.Fake).Fail
			}
			if err := c.end(g.fake, id); err != nil {
				t.Fatal(err)
			}
			j := g.ends(id)
			if j.State != c.state || j.AdminComment != c.job.AdminComment {
				t.Errorf("the job is %s with %q", j.State, j.AdminComment)
			}
			g.nothingHeld()
		})
	}
}

// TestGrowWhileAnotherAgentPasses replaces the Held tag before the job is held, as another agent's pass may do. The
// job must have it again in the end, because no agent releases a held job without it.
func TestGrowWhileAnotherAgentPasses(t *testing.T) {
	g := newGrowing(t, "22.05.8")
	id := g.submit(growingJob("1g.5gb", "oom"))
	g.publish()
	g.fake.Tick()
	g.lease(id)
	g.peak = 4700
	g.fake.After(func(c slurmtest.Call) {
		if c.Op == "SetAdminComment" && tags.Has(c.Text, tags.Held) {
			g.fake.After(nil)
			text := tags.Replace(c.Text, tags.Held, tags.Released)
			if err := g.fake.SetAdminComment(context.Background(), id, text); err != nil {
				t.Error(err)
			}
		}
	})
	if err := g.fake.Fail(id); err != nil {
		t.Fatal(err)
	}
	if j := g.ends(id); j.State != "PENDING" || j.Priority != 0 || !tags.Has(j.AdminComment, tags.Held) {
		t.Errorf("the job is %s with priority %d and %q", j.State, j.Priority, j.AdminComment)
	}
}

// TestGrowBeforeFailure requeues a running job. If the requeue fails at first, the job grows only once. Neither a
// forecast that no profile satisfies nor one for a job in oom mode may end the run.
func TestGrowBeforeFailure(t *testing.T) {
	g := newGrowing(t, "22.05.8")
	id := g.submit(growingJob("1g.5gb", "forecast"))
	if profile, _ := g.runs(id); profile != "1g.5gb" {
		t.Fatal(profile)
	}
	other := g.submit(growingJob("1g.5gb", "oom"))
	g.publish()
	g.fake.Tick()
	g.lease(other)
	ctx := context.Background()
	g.agent.growBeforeFailure(ctx, other, 9000)
	g.agent.growBeforeFailure(ctx, id, 99000)
	if a, b := g.state(id), g.state(other); a != "RUNNING" || b != "RUNNING" {
		t.Fatalf("the jobs are %s and %s", a, b)
	}
	g.fake.Before(down("RequeueHold"))
	g.agent.growBeforeFailure(ctx, id, 8000)
	g.fake.Before(nil)
	g.agent.growBeforeFailure(ctx, id, 9000)
	j := g.ends(id)
	if j.State != "PENDING" || tags.Value(j.AdminComment, tags.Grown) != "1g.5gb:forecast:9000" ||
		!tags.Has(j.AdminComment, tags.Size+"1g.10gb") || !strings.HasPrefix(j.AdminComment, "JS1:other ") {
		t.Fatalf("the job is %s with %q", j.State, j.AdminComment)
	}
	if profile, counted := g.runs(id); profile != "1g.10gb" || counted != "1g.5gb" {
		t.Errorf("the job runs on %s, which slurmctld counts as %s", profile, counted)
	}
	g.agent.growBeforeFailure(ctx, id, 9000) // a late forecast of the first run
	if g.state(id) != "RUNNING" {
		t.Errorf("the job is %s", g.state(id))
	}
}

// TestForecastAgainstEarlierRuns checks that a forecast does not end a run that has used no more memory than an
// earlier, complete run of the job.
func TestForecastAgainstEarlierRuns(t *testing.T) {
	g := newGrowing(t, "22.05.8")
	id := g.submit(growingJob("1g.5gb", "forecast"))
	g.runs(id)
	runOf, repository := g.agent.runOf, usagetest.NewRepository()
	g.agent.repository = repository
	g.agent.runOf = func(id uint32) (predict.Run, bool) {
		run, ok := runOf(id)
		run.Key = "0123456789abcdef"
		return run, ok
	}
	g.peak = 4000
	earlier, _ := g.agent.runOf(id)
	earlier.Job, earlier.State = id+1000, "COMPLETED"
	if err := repository.Ended(earlier, time.Now()); err != nil {
		t.Fatal(err)
	}
	g.agent.growBeforeFailure(context.Background(), id, 9000)
	if g.state(id) != "RUNNING" {
		t.Fatalf("the job is %s", g.state(id))
	}
	g.peak = 4001
	g.agent.growBeforeFailure(context.Background(), id, 9000)
	if j := g.ends(id); j.State != "PENDING" {
		t.Errorf("the job is %s", j.State)
	}
}

// TestGrownWithoutRoom starts a grown job on a node that offers the requested profile, but has no room for the larger
// profile. The job must return to the queue instead of running on the smaller one.
func TestGrownWithoutRoom(t *testing.T) {
	g := newGrowing(t, "22.05.8")
	big := g.submit(job(1, "4g.20gb:1"))
	g.publish()
	g.fake.Tick()
	g.lease(big)
	j := growingJob("1g.5gb", "oom")
	j.AdminComment = fmt.Sprintf("%s7g.40gb %soom %s1g.5gb:oom:4700", tags.Size, tags.Grow, tags.Grown)
	id := g.submit(j)
	g.submit(job(1, "1g.5gb:1"))
	g.publish()
	if o := g.offers(); o["1g.5gb"] != 0 {
		t.Errorf("the agent offers %v although slurmctld would start the grown job", o)
	}
	// slurmctld starts the job on an offer that an agent published before the job had grown.
	gres := gres(t, fmt.Sprintf(closedA100, 7, 26))
	for k := range gres {
		if gres[k].Type == "1g.5gb" || gres[k].Type == "4g.20gb" {
			gres[k].Count = 1
		}
	}
	if err := g.fake.UpdateNode(context.Background(), "n1", gres, ""); err != nil {
		t.Fatal(err)
	}
	g.fake.Tick()
	if l := g.lease(id); len(l.Slices) != 0 || l.Error == "" {
		t.Errorf("the grown job got %+v", l)
	}
	if r := g.ends(id); r.State != "PENDING" || !tags.Has(r.AdminComment, tags.Held) {
		t.Errorf("the grown job is %s with %q", r.State, r.AdminComment)
	}
}
