package agent

import (
	"context"
	"fmt"
	"testing"

	"caelum/internal/slurm"
)

// odd is a Fake that returns unclear records for some jobs.
type odd struct {
	Slurmctld
	unclear map[uint32]bool   // jobs whose allocation in the record is ambiguous
	problem map[uint32]string // jobs whose request cannot be parsed
}

func (o odd) Job(ctx context.Context, id uint32) (slurm.Job, error) {
	j, err := o.Slurmctld.Job(ctx, id)
	if o.problem[id] != "" {
		j.Problem, j.PerNode = o.problem[id], nil
	}
	if err == nil && o.unclear[id] {
		j.Allocated = nil
		err = fmt.Errorf("job %d: %w", id, slurm.ErrAmbiguous)
	}
	return j, err
}

func (o odd) Jobs(ctx context.Context) ([]slurm.Job, error) {
	jobs, err := o.Slurmctld.Jobs(ctx)
	return o.shown(jobs), err
}

func (o odd) Queue(ctx context.Context) (slurm.Queue, error) {
	q, err := o.Slurmctld.Queue(ctx)
	q.All = o.shown(q.All)
	return q, err
}

func (o odd) shown(jobs []slurm.Job) []slurm.Job {
	for k, j := range jobs {
		if o.problem[j.ID] != "" {
			jobs[k].Problem, jobs[k].PerNode = o.problem[j.ID], nil
		}
	}
	return jobs
}

// pendingCase is a job and the pending lease that the agent must record for it.
type pendingCase struct {
	job     slurm.Job
	unclear bool   // the job's record is unclear
	problem string // the unreadable field of its listed request
	wants   string
}

// TestPendingLeases checks the pending leases of jobs. A job without GPU slots must not get one, even if its record
// is ambiguous, because no prolog removes it before the job ends. A job with slots must get one with at most as many
// slices as slots.
func TestPendingLeases(t *testing.T) {
	slices7, exclusive := job(7, "1g.5gb:7"), job(1, "2g.10gb:1")
	exclusive.PerNode = exclusive.PerNode.Named("mig")
	exclusive.Exclusive = true
	noSlots := slices7
	noSlots.PerNode = slices7.PerNode.Named("mig")
	fewSlots := job(1, "1g.5gb:7")
	perJob := noSlots
	perJob.PerJob = []slurm.GRES{{Name: "gpu", Count: 7}}
	for name, tc := range map[string]pendingCase{
		"as many slots":                        {job: slices7, wants: "1g.5gb:7"},
		"as many slots, unclear":               {job: slices7, unclear: true, wants: "1g.5gb:7"},
		"slots per job, unclear":               {job: perJob, unclear: true, wants: "1g.5gb:7"},
		"slots and an unreadable request":      {job: slices7, problem: "tres-per-node", wants: "1g.5gb:7"},
		"no slots":                             {job: noSlots},
		"no slots, unclear":                    {job: noSlots, unclear: true},
		"no slots and an unreadable request":   {job: noSlots, problem: "tres-per-node"},
		"fewer slots":                          {job: fewSlots},
		"fewer slots, unclear":                 {job: fewSlots, unclear: true},
		"every slot by --exclusive":            {job: exclusive, wants: "2g.10gb:1"},
		"every slot by --exclusive, unclear":   {job: exclusive, unclear: true, wants: "2g.10gb:1"},
		"slots only and an unreadable request": {job: job(1, ""), problem: "tres-per-node"},
	} {
		t.Run(name, func(t *testing.T) { testPendingLease(t, tc) })
	}
}

func testPendingLease(t *testing.T, tc pendingCase) {
	w := newWorld(t, 1)
	w.stop()
	o := odd{w.fake, map[uint32]bool{}, map[uint32]string{}}
	w.ctl = o
	w.start()
	w.fake.Prolog(func(slurm.Job, string) {}) // the prolog never requests a lease
	id := w.submit(tc.job)
	w.publish()
	w.fake.Tick()
	if w.state(id) != "RUNNING" {
		t.Fatalf("the job is %s", w.state(id))
	}
	o.unclear[id], o.problem[id] = tc.unclear, tc.problem
	for range 2 {
		w.publish()
	}
	got := ""
	w.agent.node.Lock()
	if pr := w.agent.node.Pending[id]; pr != nil {
		got = list(pr.Wants)
	}
	w.agent.node.Unlock()
	if got != tc.wants {
		t.Errorf("the pending lease has %q, want %q", got, tc.wants)
	}
	reads := 0
	for _, c := range w.fake.Calls() {
		if c.Op == "Job" && c.Job == id {
			reads++
		}
	}
	if reads > 1+1 { // includes one read by the test itself
		t.Errorf("the job was read %d times", reads)
	}
	w.fake.Finish(id)
	w.fake.RunEpilogs()
	w.fake.Advance(10 * 60e9)
	w.publish()
	if _, left := w.agent.node.Unserved[id]; left || w.agent.node.Pending[id] != nil {
		t.Error("the job is gone but still counted")
	}
}

// TestSlicesWithoutSlots checks that a job with slices but no slots does not keep other jobs from using the GPU.
func TestSlicesWithoutSlots(t *testing.T) {
	w := newWorld(t, 1)
	j := job(1, "1g.5gb:7")
	j.PerNode = j.PerNode.Named("mig")
	without := w.submit(j)
	w.publish()
	w.fake.Tick()
	id := w.startNow("7g.40gb:1")
	if l := w.lease(id); len(l.Slices) != 1 || w.state(without) != "RUNNING" {
		t.Errorf("%+v alongside a job that is %s", l, w.state(without))
	}
}
