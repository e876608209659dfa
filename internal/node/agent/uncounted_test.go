package agent

import (
	"context"
	"slices"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// requeued advances the clock until an agent may release a requeued job, publishes, and returns the job.
func (w *world) requeued(id uint32) slurm.Job {
	w.t.Helper()
	w.prologs.Wait()
	w.fake.RunEpilogs()
	w.fake.Advance(10 * 60e9)
	w.publish()
	j, err := w.fake.Job(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// TestJobWithoutASize checks that a job that requests GPUs but no slice gets no lease. Before its next run, it must
// get the profile that job_submit.lua chose at submission or, if there is none, the node's default profile.
func TestJobWithoutASize(t *testing.T) {
	for name, tc := range map[string]struct{ comment, size string }{
		"not seen by job_submit.lua":    {"", "3g.20gb"},
		"its slices were removed":       {"x caelum:sized=1g.10gb", "1g.10gb"},
		"sized with an unknown profile": {"caelum:sized=1g.23gb", "3g.20gb"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, tightest, func(c *config.Config) { c.DefaultProfile = "3g.20gb" })
			w.publish()
			j := job(1, "")
			j.AdminComment = tc.comment
			id := w.submit(j)
			w.fake.Tick()
			if l := w.lease(id); len(l.Slices) > 0 ||
				!strings.Contains(l.Error, "no slice; request slices (--gres=gpu:1,mig:"+tc.size+":1)") {
				t.Fatalf("%+v", l)
			}
			if got := w.requeued(id); !slices.Contains(got.PerNode, slurm.GRES{Name: "mig", Type: tc.size, Count: 1}) {
				t.Fatalf("the job asks for %v", got.PerNode)
			}
			w.fake.Tick()
			if l := w.lease(id); len(l.Slices) != 1 || l.Slices[0].Profile != tc.size {
				t.Errorf("the next run has %+v", l)
			}
		})
	}
}

// TestUncountedSlices checks that no job gets a slice that slurmctld has not allocated to it. A job that may be
// requeued must be requeued; any other must get an error with the reason.
func TestUncountedSlices(t *testing.T) {
	exclusive := func(j slurm.Job) slurm.Job { j.Exclusive = true; return j }
	interactive := func(j slurm.Job) slurm.Job { j.Batch = false; return j }
	stays := func(j slurm.Job) slurm.Job { j.Requeue = false; return j }
	untyped := job(1, "")
	untyped.PerNode = append(untyped.PerNode, slurm.GRES{Name: "mig", Count: 28})
	one := job(1, "")
	one.PerNode = append(one.PerNode, slurm.GRES{Name: "mig", Count: 1})
	perJob := slurm.Job{Name: "j", User: "user1", PerJob: []slurm.GRES{{Name: "gpu", Count: 1}}}
	for name, tc := range map[string]struct {
		job  slurm.Job
		says string
	}{
		"srun": {interactive(job(1, "")),
			"request slices (--gres=gpu:1,mig:7g.40gb:1) or use a partition that Caelum manages; submit the job again"},
		"--no-requeue": {stays(job(2, "")),
			"request slices (--gres=gpu:2,mig:7g.40gb:2) or use a partition that Caelum manages; submit the job again"},
		"--exclusive":             {exclusive(job(1, "")), "the job was requeued"},
		"--exclusive srun":        {exclusive(interactive(job(1, ""))), "submit the job again"},
		"--exclusive --gpus":      {exclusive(perJob), "submit the job again"},
		"untyped, one slice":      {one, "without a profile"},
		"untyped":                 {untyped, "without a profile"},
		"untyped and --exclusive": {exclusive(untyped), "without a profile"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.publish()
			id := w.submit(tc.job)
			w.fake.Tick()
			if l := w.lease(id); len(l.Slices) > 0 || !strings.Contains(l.Error, tc.says) {
				t.Errorf("%+v", l)
			}
		})
	}
}

// TestAllocationCovers checks that the requested slices of an --exclusive job are carved only if its allocation
// includes all of them.
func TestAllocationCovers(t *testing.T) {
	w := newWorld(t, 1)
	all := gres(t, "gpu:a100:7,mig:1g.5gb:1,mig:2g.10gb:2,mig:closed:25")
	for asked, want := range map[string]string{
		"gpu:1,mig:2g.10gb:2":                           "2g.10gb:2",
		"gpu:2,mig:2g.10gb:1,mig:1g.5gb:1":              "2g.10gb:1,1g.5gb:1",
		"gpu:2,mig:2g.10gb:1,mig:2g.10gb:1":             "2g.10gb:1,2g.10gb:1",
		"gpu:1,mig:7g.40gb:1":                           "",
		"gpu:3,mig:2g.10gb:3":                           "",
		"gpu:3,mig:2g.10gb:2,mig:2g.10gb:1":             "",
		"gpu:1,mig:2g.10gb:0":                           "",
		"gpu:4,mig:1g.5gb:1,mig:2g.10gb:1,mig:closed:1": "",
	} {
		j := slurm.Job{Exclusive: true, PerNode: gres(t, asked), Allocated: map[string]slurm.GRESList{"n1": all}}
		wants, err := w.agent.node.Wants(j, 7)
		if list(wants) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %v, %v; want %q", asked, wants, err, want)
		}
	}
}

// TestUnevenNodes checks that a job whose nodes have different numbers of GPUs gets a slice for each of its slots, and
// that no other job may have more slices than slots.
func TestUnevenNodes(t *testing.T) {
	w := newWorld(t, 1)
	here := map[string]slurm.GRESList{"n1": gres(t, "gpu:a100:1,mig:2g.10gb:2")}
	for name, c := range map[string]struct {
		job  slurm.Job
		want string
	}{
		"per task": {slurm.Job{PerNode: gres(t, "mig:2g.10gb:2"), PerTask: gres(t, "gpu:1"), Tasks: 3}, "2g.10gb:1"},
		"per node": {slurm.Job{PerNode: gres(t, "mig:2g.10gb:2,gpu:1")}, ""},
		"per job":  {slurm.Job{PerNode: gres(t, "mig:2g.10gb:2"), PerJob: gres(t, "gpu:1")}, ""},
	} {
		c.job.Allocated = here
		wants, err := w.agent.node.Wants(c.job, 1)
		if (err == nil) != (c.want != "") || err == nil && list(wants) != c.want {
			t.Errorf("%s: %v, %v; want %q", name, wants, err, c.want)
		}
	}
}

// TestSlicesRemovedAgainAndAgain checks a job whose user removes the slices whenever an agent has added them. It must
// be held after maxRequeues requeues.
func TestSlicesRemovedAgainAndAgain(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	id := w.submit(job(1, ""))
	for run := range 5 {
		w.fake.Tick()
		if w.state(id) == "PENDING" {
			break
		}
		if l := w.lease(id); len(l.Slices) > 0 {
			t.Fatalf("run %d has %+v", run, l.Slices)
		}
		w.requeued(id)
		if err := w.fake.SetJobGRES(context.Background(), id, []slurm.GRES{{Name: "gpu", Count: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	j, err := w.fake.Job(context.Background(), id)
	if err != nil || j.Restarts != maxRequeues+1 || j.Priority != 0 || tags.Has(j.AdminComment, tags.Held) ||
		!strings.Contains(j.AdminComment, "caelum:no-room=7g.40gb:1@n1") {
		t.Errorf("%d restarts, priority %d, %q, %v", j.Restarts, j.Priority, j.AdminComment, err)
	}
}

// TestOtherGRESOfRequeuedJob checks that a requeued job keeps its other GRES when an agent sets its profile. Since
// Slurm 23.11, an update replaces the whole list of GRES.
func TestOtherGRESOfRequeuedJob(t *testing.T) {
	w := newWorld(t, 1)
	w.publish()
	id := w.submit(job(1, ""))
	w.fake.Tick()
	if l := w.lease(id); len(l.Slices) > 0 {
		t.Fatalf("a job without slices has %+v", l.Slices)
	}
	w.prologs.Wait()
	w.fake.RunEpilogs()
	if err := w.fake.SetJobGRES(context.Background(), id, gres(t, "gpu:1,scratch:2")); err != nil {
		t.Fatal(err)
	}
	if got := w.requeued(id).PerNode.String(); got != "gpu:1,scratch:2,mig:7g.40gb:1" {
		t.Errorf("requests %s", got)
	}
}
