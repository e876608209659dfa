package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// offering returns a copy of the node that offers additional free slices.
func offering(n slurm.Node, gres string) slurm.Node {
	list, err := slurm.ParseGRES(gres)
	if err != nil {
		panic(err)
	}
	n.Gres = append(slices.Clone(n.Gres), list...)
	return n
}

// explainCase is a snapshot with the expected explanation for job 1.
type explainCase struct {
	what    string
	nodes   []slurm.Node
	queue   []slurm.Waiting
	over    []slurm.Job
	verdict Verdict
	says    []string
}

// checkExplanations checks each case's verdict, and that its text names the expected jobs, nodes, times and reasons.
func checkExplanations(t *testing.T, cases []explainCase) {
	t.Helper()
	for _, c := range cases {
		snapshot := snapshotOf(c.nodes, c.queue...)
		snapshot.Queue.All = c.over
		for _, w := range c.queue {
			snapshot.Queue.All = append(snapshot.Queue.All, *w.Job)
		}
		e, err := Explain(snapshot, withReach, 1)
		if err != nil || e.Verdict != c.verdict ||
			slices.ContainsFunc(c.says, func(s string) bool { return !strings.Contains(e.Text, s) }) {
			t.Errorf("%s: %s (%s), %v; want %s and a text with %q", c.what, e.Verdict, e.Text, err, c.verdict, c.says)
		}
	}
}

func inHetJob7(w slurm.Waiting) slurm.Waiting {
	w.HetJob = 7
	return w
}

// TestExplainJob checks the explanations of jobs that have started or ended, and of jobs that slurmctld would not start
// even if their slices were free.
func TestExplainJob(t *testing.T) {
	full := node(t, "n1", a100(t, "7g.40gb@0"))
	idle := node(t, "n3", a100(t))
	held := waits(1, "7g.40gb", 1, 1)
	held.Priority, held.Reason = 0, "JobHeldUser"
	later := held.Clone()
	later.AdminComment, later.Job.Eligible = tags.Held, time.Unix(1e9+500, 0)
	refused := held.Clone()
	refused.AdminComment = tags.Requeued + "3 " + tags.NoRoom + "7g.40gb:1@n3"
	impossible := held.Clone()
	impossible.Reason = "BadConstraints"
	released := impossible.Clone()
	released.AdminComment = tags.Released
	blocked := waits(1, "7g.40gb", 1, 1)
	blocked.Reason = "AssocGrpGRES"
	odd := waits(1, "7g.40gb", 1, 1)
	odd.Problem = "no such thing"
	cpu := waits(1, "7g.40gb", 1, 1)
	cpu.PerNode = nil
	bare := waits(1, "7g.40gb", 1, 1)
	bare.PerNode = []slurm.GRES{{Name: "gpu", Count: 1}}
	managed, whole := full, full
	managed.Gres = []slurm.GRES{{Name: "gpu", Count: 7}, {Name: "mig", Type: "closed", Count: 28}}
	whole.Gres = []slurm.GRES{{Name: "gpu", Count: 1}}
	runs := slurm.Job{ID: 1, State: "RUNNING", Nodes: []string{"n1"}, PerNode: held.PerNode}
	unsized := later.Clone()
	unsized.PerNode = []slurm.GRES{{Name: "gpu", Count: 1}}
	limited := inHetJob7(waits(7, "1g.5gb", 1, 1))
	limited.Reason = "AssocGrpGRES"
	checkExplanations(t, []explainCase{
		{"the job runs", []slurm.Node{full}, nil, []slurm.Job{runs}, Started, []string{"n1", "7g.40gb"}},
		{"the job started between the two readings", []slurm.Node{full}, nil, []slurm.Job{*held.Job}, Started,
			[]string{"starting"}},
		{"the job runs without slices", []slurm.Node{full}, nil,
			[]slurm.Job{{ID: 1, State: "RUNNING", Nodes: []string{"n1"}}}, Started, []string{"n1"}},
		{"the job has ended", []slurm.Node{full}, nil, []slurm.Job{{ID: 1, State: "COMPLETED"}}, Over,
			[]string{"COMPLETED"}},
		{"no GPU", []slurm.Node{managed}, []slurm.Waiting{cpu}, nil, NoSlice, []string{"contains no MIG profile"}},
		{"GPUs without a profile on nodes with slices", []slurm.Node{managed}, []slurm.Waiting{bare}, nil, NoSlice,
			[]string{"gpu probably has none", "--gres=gpu:1,mig:PROFILE:1"}},
		{"GPUs on nodes without slices", []slurm.Node{whole}, []slurm.Waiting{bare}, nil, NoSlice,
			[]string{"contains no MIG profile"}},
		{"a request that cannot be read", []slurm.Node{full}, []slurm.Waiting{odd}, nil, Unreadable,
			[]string{"no such thing"}},
		{"held by its user", []slurm.Node{idle}, []slurm.Waiting{held}, nil, NotEligible, []string{"JobHeldUser"}},
		{"held by slurmctld", []slurm.Node{offering(idle, "mig:7g.40gb:1")}, []slurm.Waiting{impossible}, nil,
			NotEligible, []string{"no node could meet the whole request", "No agent releases", "scontrol release 1"}},
		{"held by slurmctld after an agent's release", []slurm.Node{offering(idle, "mig:7g.40gb:1")},
			[]slurm.Waiting{released}, nil, OnOffer, []string{"no node could meet the whole request",
				"An agent releases the job in its next pass", "scontrol show job 1"}},
		{"held until later", []slurm.Node{idle}, []slurm.Waiting{later}, nil, NotEligible,
			[]string{later.Job.Eligible.Format(time.DateTime)}},
		{"held after requeues", []slurm.Node{idle}, []slurm.Waiting{refused}, nil, NotEligible,
			[]string{"7g.40gb:1 was not available on n3", "log on n3", "`scontrol release 1`"}},
		{"a limit", []slurm.Node{idle}, []slurm.Waiting{blocked}, nil, NotEligible, []string{"AssocGrpGRES"}},
		{"requeued without a profile", []slurm.Node{idle}, []slurm.Waiting{unsized}, nil, NotEligible,
			[]string{"will assign a profile", unsized.Job.Eligible.Format(time.DateTime)}},
		{"the other component has reached a limit", []slurm.Node{idle, full},
			[]slurm.Waiting{limited, inHetJob7(waits(1, "2g.10gb", 1, 1))}, nil, NotEligible,
			[]string{"job 7", "AssocGrpGRES"}},
	})
	if _, err := Explain(snapshotOf(nil), withReach, 7); !errors.Is(err, slurm.ErrNoJob) {
		t.Errorf("a job that does not exist: %v", err)
	}
}

// TestExplainByPlan checks the explanations of jobs that wait for slices.
func TestExplainByPlan(t *testing.T) {
	until := time.Unix(1e9+100, 0).Format(time.DateTime) // the time at which the busy slices of a100 end
	full := node(t, "n1", a100(t, "7g.40gb@0"))
	ending := offering(node(t, "n3", a100(t)), "mig:7g.40gb:1")
	ending.States = []string{"IDLE", "COMPLETING"}
	half := node(t, "n2", a100(t, "4g.20gb@0"))
	idle := node(t, "n3", a100(t))
	tagged := waits(1, "7g.40gb", 1, 1)
	tagged.Priority, tagged.Reason, tagged.AdminComment = 0, "JobHeldUser", tags.Held
	down := idle
	down.States = []string{"DOWN"}
	excluding := waits(1, "1g.5gb", 1, 1)
	excluding.ExcNodes = []string{"n3"}
	broken := node(t, "n3", a100(t), place.GPU{})
	silent := idle
	silent.Extra = ""
	there := waits(1, "1g.5gb", 1, 1)
	there.ReqNodes = []string{"n3"}
	busy := half
	busy.Name, busy.CPUs, busy.CPUsFree = "n3", 64, 1
	many := waits(1, "3g.20gb", 1, 1)
	many.CPUs = 4
	pinned := waits(3, "3g.20gb", 1, 1)
	pinned.ReqNodes = []string{"n1"}
	two := node(t, "n2", a100(t, "7g.40gb@0"), a100(t, "4g.20gb@0"))
	kept, other := offering(two, "mig:7g.40gb:1,mig:1g.5gb:1"), offering(two, "mig:7g.40gb:0,mig:1g.5gb:1")
	seven, planned := waits(2, "7g.40gb", 1, 1), waits(1, "1g.5gb", 1, 1)
	seven.Start, planned.Start = time.Unix(1e9+1800, 0), time.Unix(1e9+5400, 0)
	planned.TimeLimit, planned.Reason = time.Hour, "Priority"
	elsewhere := waits(1, "7g.40gb", 1, 1)
	elsewhere.Partition = "other"
	checkExplanations(t, []explainCase{
		{"held until its slice is on offer", []slurm.Node{idle}, []slurm.Waiting{tagged}, nil, Planned,
			[]string{"n3"}},
		{"on offer", []slurm.Node{offering(idle, "mig:7g.40gb:1")}, []slurm.Waiting{waits(1, "7g.40gb", 1, 1)}, nil,
			OnOffer, []string{"n3", "next scheduling cycle"}},
		{"on offer on a node that slurmctld keeps for an earlier job", []slurm.Node{kept},
			[]slurm.Waiting{seven, planned}, nil, OnOffer, []string{"n2",
				"slurmctld plans to start the job at " + time.Unix(1e9+5400, 0).Format(time.DateTime),
				"keeps the node for job 2, which it plans to start at " +
					time.Unix(1e9+1800, 0).Format(time.DateTime), "timelimit=..."}},
		{"on offer on a node where an earlier job cannot run", []slurm.Node{other, full},
			[]slurm.Waiting{seven, planned}, nil, OnOffer, []string{"n2", "slurmctld plans to start the job at",
				"its reason: Priority"}},
		{"on offer on a node where a job is ending", []slurm.Node{ending}, []slurm.Waiting{waits(1, "7g.40gb", 1, 1)},
			nil, OnOffer, []string{"the state of n3 is COMPLETING", "epilog"}},
		{"a profile of no GPU model", []slurm.Node{idle}, []slurm.Waiting{waits(1, "9g.90gb", 1, 1)}, nil, Nowhere,
			[]string{"will not start, because no node can", "n3 cannot hold 9g.90gb", "`scancel 1`"}},
		{"more nodes than there are", []slurm.Node{idle}, []slurm.Waiting{waits(1, "1g.5gb", 1, 2)}, nil, Nowhere,
			[]string{"will not start, because fewer than 2 nodes can", "n3 could be one of the 2 nodes"}},
		{"a node without an agent", []slurm.Node{silent, full}, []slurm.Waiting{there}, nil, Nowhere,
			[]string{"no node is eligible", "n3 has no agent", "n1 is not among the nodes"}},
		{"no CPUs, behind another job", []slurm.Node{busy}, []slurm.Waiting{waits(2, "7g.40gb", 1, 1), many}, nil,
			Lacks, []string{"n3 has 1 CPUs free, but the job needs 4"}},
		{"another job waits for the same profile on another node", []slurm.Node{half, full},
			[]slurm.Waiting{pinned, waits(1, "3g.20gb", 1, 1)}, nil, Planned, []string{"n2"}},
		{"a node that is down", []slurm.Node{down}, []slurm.Waiting{waits(1, "1g.5gb", 1, 1)}, nil, Nowhere,
			[]string{"no node is eligible", "n3 is DOWN"}},
		{"a node that is down, whose GPUs are unknown", []slurm.Node{down},
			[]slurm.Waiting{waits(1, "9g.90gb", 1, 1)}, nil, Nowhere, []string{"no node is eligible", "n3 is DOWN"}},
		{"a node that is down and excluded", []slurm.Node{down}, []slurm.Waiting{excluding}, nil, Nowhere,
			[]string{"will not start, because no node can", "n3 is DOWN"}},
		{"a node with a broken GPU", []slurm.Node{broken}, []slurm.Waiting{waits(1, "7g.40gb", 2, 1)}, nil, Nowhere,
			[]string{"no node is eligible", "n3 cannot hold 7g.40gb x2"}},
		{"a partition without nodes", []slurm.Node{idle}, []slurm.Waiting{elsewhere}, nil, Nowhere,
			[]string{"n3 is not in other"}},
		{"the first that waits", []slurm.Node{full}, []slurm.Waiting{waits(1, "1g.5gb", 1, 1)}, nil, First,
			[]string{"n1", until}},
		{"no room", []slurm.Node{full}, []slurm.Waiting{waits(2, "7g.40gb", 1, 1), waits(1, "1g.5gb", 1, 1)}, nil,
			NoRoom, []string{"n1", until}},
		{"no room beside a GPU that is not managed", []slurm.Node{node(t, "n1", a100(t, "7g.40gb@0"), place.GPU{})},
			[]slurm.Waiting{waits(1, "1g.5gb", 1, 1)}, nil, First,
			[]string{until, "some GPUs are not managed, for example after a fatal Xid error, on n1"}},
		{"behind a job that waits for the same profile", []slurm.Node{half},
			[]slurm.Waiting{waits(2, "3g.20gb", 2, 1), waits(1, "3g.20gb", 1, 1)}, nil, Behind, []string{"job 2"}},
		{"slurmctld would start the earlier job", []slurm.Node{full, half},
			[]slurm.Waiting{waits(2, "3g.20gb", 1, 2), waits(1, "3g.20gb", 1, 1)}, nil, Behind,
			[]string{"room for 3g.20gb is free but not on offer: job 2", "for job 2 and not for this job"}},
		{"the room is reserved", []slurm.Node{half},
			[]slurm.Waiting{waits(2, "7g.40gb", 1, 1), waits(1, "3g.20gb", 1, 1)}, nil, Behind,
			[]string{"job 2", until}},
	})
}

// TestExplainHetJob checks the explanations of het job components that wait for slices, and of jobs behind het jobs.
func TestExplainHetJob(t *testing.T) {
	until := time.Unix(1e9+100, 0).Format(time.DateTime) // the time at which the busy slices of a100 end
	full := node(t, "n1", a100(t, "7g.40gb@0"))
	half := node(t, "n2", a100(t, "4g.20gb@0"))
	idle := node(t, "n3", a100(t))
	checkExplanations(t, []explainCase{
		{"a component that has room, but the other does not", []slurm.Node{idle, full},
			[]slurm.Waiting{inHetJob7(waits(7, "1g.5gb", 1, 1)), inHetJob7(waits(1, "2g.10gb", 1, 1))}, nil, First,
			[]string{"the slices of all components of het job 7", "n1", "n3", until}},
		{"components behind a job that is planned", []slurm.Node{idle, full}, []slurm.Waiting{waits(2, "7g.40gb", 1, 1),
			inHetJob7(waits(7, "1g.5gb", 1, 1)), inHetJob7(waits(1, "2g.10gb", 1, 1))}, nil, First,
			[]string{"the slices of all components of het job 7", "n1", "n3"}},
		{"components, on one node", []slurm.Node{full}, []slurm.Waiting{waits(2, "7g.40gb", 1, 1),
			inHetJob7(waits(7, "1g.5gb", 1, 1)), inHetJob7(waits(1, "2g.10gb", 1, 1))}, nil, Nowhere,
			[]string{"n1 could run the job, but all components of het job 7 start together"}},
		{"components behind the first", []slurm.Node{half, full}, []slurm.Waiting{waits(2, "7g.40gb", 1, 1),
			inHetJob7(waits(7, "1g.5gb", 1, 1)), inHetJob7(waits(1, "2g.10gb", 1, 1))}, nil, NoRoom,
			[]string{"all components of het job 7", "n1", "n2", until}},
		{"on offer, behind a het job that can never start", []slurm.Node{offering(idle, "mig:1g.5gb:1")},
			[]slurm.Waiting{inHetJob7(waits(7, "1g.5gb", 1, 1)), inHetJob7(waits(8, "1g.5gb", 1, 1)),
				waits(1, "1g.5gb", 1, 1)}, nil, OnOffer, []string{"het job 7 is earlier in the queue"}},
	})
}

// TestExplainHeld checks that a job that Caelum holds and that no node can ever run does not count as held, because no
// agent will release it. A node that is down can run it later.
func TestExplainHeld(t *testing.T) {
	for profile, want := range map[string]bool{"1g.5gb": true, "9g.90gb": false} {
		held := waits(1, profile, 1, 1)
		held.Priority, held.Reason, held.AdminComment = 0, "JobHeldUser", tags.Held
		for _, states := range [][]string{{"IDLE"}, {"DOWN"}} {
			n := node(t, "n3", a100(t))
			n.States = states
			snapshot := snapshotOf([]slurm.Node{n}, held)
			snapshot.Queue.All = []slurm.Job{*held.Job}
			e, err := Explain(snapshot, withReach, 1)
			if want := want || states[0] == "DOWN"; err != nil || e.Held != want {
				t.Errorf("%s, %v: held %v, want %v (%v): %s", profile, states, e.Held, want, err, e.Text)
			}
		}
	}
}

// TestRef checks the ids of jobs, array tasks and components.
func TestRef(t *testing.T) {
	for want, j := range map[string]slurm.Job{
		"12":         {ID: 12},
		"12_3":       {ID: 15, ArrayJob: 12, ArrayTask: "3"},
		"12_[3-5,9]": {ID: 12, ArrayJob: 12, ArrayTask: "3-5,9"},
		"12+0":       {ID: 12, HetJob: 12},
		"12+1":       {ID: 13, HetJob: 12},
	} {
		snapshot := snapshotOf(nil)
		snapshot.Queue.All = []slurm.Job{j}
		if e, err := Explain(snapshot, withReach, j.ID); err != nil || e.Ref != want {
			t.Errorf("%+v: %q, want %q (%v)", j, e.Ref, want, err)
		}
	}
}

// TestExplainSized checks that the explanation names the profile that Caelum chose, even if the job has ended.
func TestExplainSized(t *testing.T) {
	for comment, want := range map[string]string{
		"":                            "",
		"other caelum:sized=2g.10gb":  "2g.10gb",
		"caelum:key=0123456789abcdef": "",
	} {
		snapshot := snapshotOf(nil)
		snapshot.Queue.All = []slurm.Job{{ID: 1, State: "COMPLETED", AdminComment: comment}}
		if e, err := Explain(snapshot, withReach, 1); err != nil || e.Sized != want {
			t.Errorf("%q: %q %v", comment, e.Sized, err)
		}
	}
}
