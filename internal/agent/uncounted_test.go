package agent

import (
	"context"
	"slices"
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// requeued lets a job that was given back become due again, and publishes.
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

// A job with GPUs and without a slice is given a size before it has a slice: its own, if job_submit.lua chose one at
// the submission, else the node's default.
func TestJobWithoutASize(t *testing.T) {
	for name, tc := range map[string]struct{ comment, size string }{
		"not seen by job_submit.lua":       {"", "3g.20gb"},
		"its slices were removed":          {"x caelum:sized=1g.10gb", "1g.10gb"},
		"sized with what the node has not": {"caelum:sized=1g.23gb", "3g.20gb"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.agent.cfg.DefaultProfile = "3g.20gb"
			w.publish()
			j := job(1, "")
			j.AdminComment = tc.comment
			id := w.submit(j)
			w.fake.Tick()
			if l := w.lease(id); len(l.Slices) > 0 ||
				!strings.Contains(l.Error, "no slice; ask for one (--gres=gpu:1,mig:"+tc.size+":1)") {
				t.Fatalf("%+v", l)
			}
			if got := w.requeued(id); !slices.Contains(got.PerNode, slurm.GRES{Name: "mig", Type: tc.size, Count: 1}) {
				t.Fatalf("it asks for %v", got.PerNode)
			}
			w.fake.Tick()
			if l := w.lease(id); len(l.Slices) != 1 || l.Slices[0].Profile != tc.size {
				t.Errorf("its next run has %+v", l)
			}
		})
	}
}

// No job holds a slice that slurmctld has not counted as the job's: one that may be requeued is, any other is told.
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
		"srun":                    {interactive(job(1, "")), "ask for one (--gres=gpu:1,mig:7g.40gb:1) or use a partition that Caelum manages; submit again"},
		"--no-requeue":            {stays(job(2, "")), "ask for one (--gres=gpu:2,mig:7g.40gb:2) or use a partition that Caelum manages; submit again"},
		"--exclusive":             {exclusive(job(1, "")), "the job was requeued"},
		"--exclusive srun":        {exclusive(interactive(job(1, ""))), "submit again"},
		"--exclusive --gpus":      {exclusive(perJob), "submit again"},
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

// What an --exclusive job asks for is carved as far as it is in the job's allocation.
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
		j := slurm.Job{Exclusive: true, PerNode: gres(t, asked), Allocated: map[string][]slurm.GRES{"n1": all}}
		wants, err := w.agent.wants(j, 7)
		if list(wants) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %v, %v; want %q", asked, wants, err, want)
		}
	}
}

// A user who removes the job's slices whenever an agent has put them back does that three times.
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
	if err != nil || j.Restarts != maxRequeues+1 || j.Priority != 0 || slurm.HasTag(j.AdminComment, slurm.TagHeld) ||
		!strings.Contains(j.AdminComment, "caelum:no-room=7g.40gb:1@n1") {
		t.Errorf("%d restarts, priority %d, %q, %v", j.Restarts, j.Priority, j.AdminComment, err)
	}
}
