package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

// records is a Fake with one more job, for which the test specifies what squeue and scontrol print.
type records struct {
	*slurmtest.Fake
	client *slurm.Client

	mu sync.Mutex
	output
	asked int
}

// output is the output of Slurm's commands. If fields is nil, the job does not exist.
type output struct {
	fields map[string]string // the output of squeue, by column
	show   string            // the output of scontrol show job
	nodes  string            // the node list in every second answer of squeue
	failAt int               // the number of the first command that fails; all later commands also fail
	stderr string            // the error message of commands that fail
}

func (r *records) set(o output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.output, r.asked = o, 0
}

func (r *records) on() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fields != nil
}

func (r *records) Job(ctx context.Context, id uint32) (slurm.Job, error) {
	return r.client.Job(ctx, id)
}

func (r *records) Queue(ctx context.Context) (slurm.Queue, error) {
	if !r.on() {
		return r.Fake.Queue(ctx)
	}
	return r.client.Queue(ctx)
}

func (r *records) Jobs(ctx context.Context) ([]slurm.Job, error) {
	if !r.on() {
		return r.Fake.Jobs(ctx)
	}
	return r.client.Jobs(ctx)
}

func (r *records) RequeueHold(ctx context.Context, id uint32) error {
	return r.client.RequeueHold(ctx, id)
}

func (r *records) SetAdminComment(ctx context.Context, id uint32, text string) error {
	return r.client.SetAdminComment(ctx, id, text)
}

func (r *records) SetJobGRES(ctx context.Context, id uint32, gres slurm.GRESList) error {
	return r.client.SetJobGRES(ctx, id, gres)
}

func (r *records) Release(ctx context.Context, id uint32) error { return r.client.Release(ctx, id) }

// run stands in for Slurm's commands, as slurm.Options.Run.
func (r *records) run(_ context.Context, env []string, name string, args ...string) (string, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.failAt > 0 && r.asked >= r.failAt {
		return "", r.stderr, errors.New("exit status 1")
	}
	if strings.HasSuffix(name, "scontrol") {
		if strings.Contains(strings.Join(args, " "), "show job") {
			return r.show, "", nil
		}
		return "", "", nil
	}
	last := env[len(env)-1]
	if format, ok := strings.CutPrefix(last, "SQUEUE_FORMAT="); ok {
		_, rest, _ := strings.Cut(format, "%A")
		sep, _, _ := strings.Cut(rest, "%")
		return strings.Join([]string{r.fields["jobid"], r.fields["excnodes"], r.fields["state"], "\n"}, sep), "", nil
	}
	format, _ := strings.CutPrefix(last, "SQUEUE_FORMAT2=")
	var b strings.Builder
	for column := range strings.SplitSeq(format, ",") {
		field, width, _ := strings.Cut(column, ":")
		sep := strings.TrimLeft(width, "0123456789")
		value, ok := r.fields[field]
		if !ok {
			value = "N/A"
		}
		if field == "nodelist" && r.asked%2 == 0 && r.nodes != "" {
			value = r.nodes
		}
		b.WriteString(value + sep)
	}
	return b.String() + "\n", "", nil
}

const fuzzedJob = 77

// These constants are the record of a healthy job with one 1g.5gb on n1, as squeue and scontrol 22.05.8 print it.
const (
	healthyFields = "jobid=77\narrayjobid=77\nstate=RUNNING\nreason=Prolog\nuserid=20001\nusername=user1\n" +
		"partition=gpu\nprioritylong=5\nrestartcnt=0\nbatchflag=1\nrequeue=1\noversubscribe=OK\n" +
		"timelimit=10:00\nstarttime=1795233592\nendtime=1795234192\nnodelist=n1\nnumnodes=1\n" +
		"tres-per-node=gres:gpu:1,gres:mig:1g.5gb:1\nname=j"
	healthyShow = "JobId=77 JobName=j\n   JobState=RUNNING Reason=Prolog\n" +
		"   StartTime=1795233592 EndTime=1795234192\n   NodeList=n1\n   JOB_GRES=gpu:a100:1,mig:1g.5gb:1\n" +
		"     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0),mig:1g.5gb(CNT:1)\n" +
		"   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0\n   Power=\n"
)

// with returns the fields of a healthy record, followed by the given lines. Later lines override earlier ones.
func with(lines string) string { return healthyFields + "\n" + lines }

// gave returns scontrol's healthy output with a different allocation.
func gave(gres string) string {
	return strings.Replace(healthyShow, "gpu:a100:1(IDX:0),mig:1g.5gb(CNT:1)", gres, 1)
}

// jobRecords holds the seed inputs of FuzzRecords.
var jobRecords = []struct {
	fields, show, nodes, stderr string
	failAt, slots               uint8
}{
	{healthyFields, healthyShow, "", "", 0, 1},
	{with("numnodes=2\nnodelist=n[1-2]"), healthyShow, "n1", "", 0, 1},
	{with("numnodes=2\nnodelist=n[1-2]"), healthyShow, "", "", 0, 1},
	{with("nodelist=n[1-"), healthyShow, "", "", 0, 1},
	{with("nodelist=n[1-4294967295]"), healthyShow, "n2", "", 0, 1},
	{with("tres-per-node=gres:mig:x y(:1\nname=\n   JOB_GRES=x"), healthyShow + healthyShow, "", "", 0, 1},
	{with("oversubscribe=NO\ntres-per-node=gres:gpu:1"), gave("gpu:a100:7,mig:7g.40gb:1,mig:closed:27"),
		"", "", 0, 7},
	{with("tres-per-node=gres:mig:28"), gave("gpu:a100:1,mig:closed(CNT:28)"), "", "", 0, 1},
	{with("tres-per-node=gres:gpu:1"), gave("gpu:a100:1(IDX:0)"), "", "", 0, 1},
	{with("batchflag=0"), gave("gpu:a100:1(IDX:0)"), "", "", 0, 1},
	{healthyFields, gave("mig:1g.5gb(CNT:281474976710656),mig:7g.40gb:281474976710656"), "", "", 0, 3},
	{healthyFields, gave("mig:9g.1gb"), "", "", 0, 1},
	{healthyFields, healthyShow[:120], "", "", 0, 1},
	{with("state=PENDING"), "", "", "", 0, 1},
	{with("jobid=x"), healthyShow, "", "", 0, 1},
	{with("arraytaskid=3\narrayjobid=70\nhetjobid=77\nrestartcnt=70000\nprioritylong=-1\nstarttime=never"),
		healthyShow, "", "", 0, 1},
	{healthyFields, healthyShow, "", "slurm_load_jobs error: Invalid job id specified", 1, 1},
	{healthyFields, healthyShow, "",
		"slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1, 1},
	{healthyFields, healthyShow, "", "slurm_load_jobs error: something new", 2, 1},
	{healthyFields, gave("gpu:a100:1(IDX:0)"), "", "Job has already finished", 5, 1},
	{"", "", "", "", 0, 1},
}

// FuzzRecords checks that the prolog on a healthy node succeeds for any job record and any error from Slurm's commands.
// The job must get its lease or an error in its lease file, or the agent must requeue the job.
func FuzzRecords(f *testing.F) {
	if os.Getuid() != 0 {
		f.Skip("needs root to own devices")
	}
	for _, s := range jobRecords {
		f.Add(s.fields, s.show, s.nodes, s.stderr, s.failAt, s.slots)
	}
	w := newWorld(f, 1)
	w.fake.Prolog(nil)
	w.stop()
	r := &records{Fake: w.fake}
	r.client = slurm.New(slurm.Options{Run: r.run})
	w.ctl = r
	w.start()
	a := w.agent
	a.recordPause = time.Nanosecond
	a.log.Logger.SetOutput(io.Discard)
	w.publish() // reads slurmctld's configuration

	f.Fuzz(func(t *testing.T, fields, show, nodes, stderr string, failAt, slots uint8) {
		o := output{fields: map[string]string{}, show: show, nodes: nodes, failAt: int(failAt), stderr: stderr}
		for line := range strings.Lines(fields) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			o.fields[name] = strings.ReplaceAll(value, `\n`, "\n")
		}
		r.set(o)
		req := api.LeaseRequest{UID: 20001, GID: 20001, Wait: 1e-9}
		for k := range max(int(slots)%8, 1) {
			req.Slots = append(req.Slots, k)
		}
		l, err := a.Lease(t.Context(), fuzzedJob, req)
		if err != nil {
			t.Fatalf("the prolog fails with %d: %v", api.CodeOf(err), err)
		}
		if len(l.Slices) > 0 && l.Error != "" || len(l.Slices) > len(req.Slots) {
			t.Fatalf("%+v", l)
		}
		if fields == healthyFields && show == healthyShow && nodes == "" && failAt == 0 && len(l.Slices) != 1 {
			t.Fatalf("a healthy record: %+v", l)
		}
		if text := w.leaseFiles(t)[fmt.Sprint(fuzzedJob)]; !leaseForm.MatchString(text) {
			t.Fatalf("the lease file:\n%s", text)
		}
		w.checkHolds(t)
		r.set(output{})
		if err := a.Release(t.Context(), fuzzedJob, 0); err != nil {
			t.Fatal(err)
		}
	})
}
