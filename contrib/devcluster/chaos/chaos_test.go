package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/oracle"
)

const second = int64(time.Second)

// node returns a node with one GPU. Job 1 holds instance MIG-a, which starts at unit 0. Instance MIG-b, which is idle,
// starts at unit 4.
func node() nodeState {
	return nodeState{
		GPUs: []gpu{
			{
				Instances: []instance{
					{GI: 1, Profile: "3g.20gb", Start: 0, Size: 4, UUID: "MIG-a"},
					{GI: 2, Profile: "1g.5gb", Start: 4, Size: 1, UUID: "MIG-b"},
				},
			},
		},
		Leases:  []leaseFile{{Job: "1", UID: 20001, UUIDs: []string{"MIG-a"}, Whole: true}},
		Caps:    []capFile{{GPU: 0, GI: 1, Name: "nvidia-cap12", UID: 20001, Mode: 0o400}},
		Clients: []client{{PID: 100, GPU: 0, GI: 1}},
	}
}

func procs() []proc {
	return []proc{{PID: 100, Job: "1", Node: "n1", UUIDs: []string{"MIG-a"}, Name: "cuda-process"}}
}

// TestSliceWatch checks that sliceWatch detects every way in which two jobs can share a slice, and finds nothing on a
// correct node.
func TestSliceWatch(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*nodeState, *[]proc)
		says   string
	}{
		{"sound", func(*nodeState, *[]proc) {}, ""},
		{"two lease files", func(n *nodeState, _ *[]proc) {
			n.Leases = append(n.Leases, leaseFile{Job: "2", UID: 20001, UUIDs: []string{"MIG-a"}})
		}, "lease files of jobs 1 and 2"},
		{"two jobs' processes", func(n *nodeState, p *[]proc) {
			n.Clients = append(n.Clients, client{PID: 200, GPU: 0, GI: 1})
			*p = append(*p, proc{PID: 200, Job: "2", Node: "n1"})
		}, "processes of jobs 1 and 2"},
		{"a process on another job's slice", func(n *nodeState, p *[]proc) { n.Leases[0].Job = "2" },
			"leased to job 2"},
		{"another user's file", func(n *nodeState, _ *[]proc) { n.Caps[0].UID = 20002 }, "owner 20002"},
		{"a file open to all", func(n *nodeState, _ *[]proc) { n.Caps[0].Mode = 0o444 }, "mode 444"},
		{"the environment of an ended job", func(_ *nodeState, p *[]proc) {
			*p = append(*p, proc{PID: 200, Job: "2", Node: "n1", UUIDs: []string{"MIG-a"}})
		}, ""},
		{"two environments", func(n *nodeState, p *[]proc) {
			n.Leases = append(n.Leases, leaseFile{Job: "2", UID: 20001, UUIDs: []string{"MIG-b"}, Whole: true})
			*p = append(*p, proc{PID: 200, Job: "2", Node: "n1", UUIDs: []string{"MIG-a"}})
		}, "in the environment"},
		{"the same name on another node", func(_ *nodeState, p *[]proc) {
			*p = append(*p, proc{PID: 200, Job: "2", Node: "n2", UUIDs: []string{"MIG-a"}})
		}, ""},
	} {
		var found []string
		w := newSliceWatch(func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		for at := range int64(4) {
			n, p := node(), procs()
			c.change(&n, &p)
			w.check(snapshot{At: (at + 1) * second, Nodes: map[string]nodeState{"n1": n}, Procs: p})
		}
		if text := strings.Join(found, "\n"); (c.says == "") != (text == "") || !strings.Contains(text, c.says) {
			t.Errorf("%s: found %q, want %q", c.what, text, c.says)
		}
	}
}

// TestSuspicionMustLast checks that sliceWatch does not report a short-lived suspicion, because it may be due to the
// order of the reads.
func TestSuspicionMustLast(t *testing.T) {
	w := newSliceWatch(func(format string, args ...any) { t.Errorf(format, args...) })
	n := node()
	n.Caps[0].UID = 20002
	for at, s := range []nodeState{n, node(), n, node(), n} {
		w.check(snapshot{At: int64(at+1) * 3 * second, Nodes: map[string]nodeState{"n1": s}})
	}
}

func TestOverlaps(t *testing.T) {
	jobs := jobsOf(
		"n1",
		"ran job=1 node=n1 uuid=MIG-a pid=100\nran job=2 node=n1 uuid=MIG-a pid=200\n"+
			"ran job=3 node=n2 uuid=MIG-a pid=300\n",
	)
	if len(jobs) != 2 {
		t.Fatalf("%v", jobs)
	}
	for _, c := range []struct {
		what   string
		end    int64
		killed bool
		want   int
	}{{"one after the other", 5, false, 0}, {"at the same time", 7, false, 1}, {"killed, noticed late", 7, true, 0}} {
		got := overlaps(
			[]oracle.Process{
				{PID: 200, UUID: "MIG-a", From: 6, To: 9},
				{PID: 100, UUID: "MIG-a", From: 1, To: c.end, Killed: c.killed},
			},
			jobs,
		)
		if len(got) != c.want {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}

// TestLeftovers checks that leftovers reports everything that a job can leave behind on a node.
func TestLeftovers(t *testing.T) {
	n := node()
	n.Other = []string{".new-1"}
	text := fmt.Sprint(n.leftovers("n1", false))
	for _, want := range []string{"lease file of job 1", ".new-1", "nvidia-cap12 of instance 1", "process 100"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	n = nodeState{GPUs: node().GPUs, Caps: []capFile{{GPU: 0, GI: 1, Mode: 0o400}}}
	if all := n.leftovers("n1", false); all != nil {
		t.Errorf("leftovers of a clean node: %v", all)
	}
	known := map[place]string{{0, 1, "3g.20gb"}: "idle", {0, 3, "1g.5gb"}: "idle"}
	text = fmt.Sprint(n.unknown("n1", known))
	if !strings.Contains(text, `1g.5gb at 4 on GPU 0 as ""`) ||
		!strings.Contains(text, "id 3 on GPU 0, but no such instance exists") ||
		strings.Contains(text, "3g.20gb") {
		t.Errorf("unknown: %s", text)
	}
}

// TestComplaints checks that complaints ignores capability files without an instance only if a process was killed while
// it was creating an instance.
func TestComplaints(t *testing.T) {
	const file, other = "/dev/nvidia-caps/nvidia-cap49: this file belongs to no instance\n", "GPU 0: units overlap\n"
	for _, c := range []struct {
		text   string
		killed bool
		want   int
	}{{"", false, 0}, {file, false, 1}, {file, true, 0}, {file + other, true, 1}} {
		if got := complaints("n1", c.text, c.killed); len(got) != c.want {
			t.Errorf("%q, killed %v: %v", c.text, c.killed, got)
		}
	}
}

// TestMiscounts checks that miscounts reports a wrong total, slices that count as used although no job holds them, and
// free slices that differ from the offers.
func TestMiscounts(t *testing.T) {
	offered := make([]struct{ Profile string }, 7)
	for k := range offered {
		offered[k].Profile = "1g.5gb"
	}
	plain := agentStatus{GPUs: []agentGPU{{Offers: offered}}}
	said := plain
	said.Excess = map[string]int{"1g.5gb": 2}
	hidden := said
	hidden.GPUs = nil
	short := said
	short.Short = map[string]int{"1g.5gb": 1}
	counts := func(open, used, shut int) oracle.Snapshot {
		return oracle.Snapshot{
			Total: map[string]int{"1g.5gb": open, "closed": shut},
			Used:  map[string]int{"1g.5gb": used},
		}
	}
	closedUsed := func(n int) oracle.Snapshot {
		l := counts(7, 0, 49)
		l.Used["closed"] = n
		return l
	}
	for what, c := range map[string]struct {
		look      oracle.Snapshot
		status    agentStatus
		recounted bool
		sound     bool
	}{
		"sound":                                 {counts(7, 0, 49), plain, false, true},
		"another sum":                           {counts(7, 0, 55), plain, false, false},
		"used by no job":                        {counts(7, 1, 49), plain, true, false},
		"more used than the total":              {counts(7, 8, 49), plain, true, false},
		"less free than offered":                {counts(6, 0, 50), plain, false, false},
		"more free than offered":                {counts(8, 0, 48), plain, false, false},
		"a reported excess":                     {counts(9, 2, 47), said, true, true},
		"an excess without a cause":             {counts(9, 2, 47), said, false, false},
		"an excess other than reported":         {counts(8, 1, 48), said, true, false},
		"an excess that blocks slices":          {counts(7, 2, 49), said, true, false},
		"an excess of a hidden profile":         {counts(0, 2, 56), hidden, true, true},
		"a hidden profile that is offered":      {counts(0, 2, 56), said, true, false},
		"an excess of a total that is not 0":    {counts(1, 2, 55), hidden, true, false},
		"the filler, after a restart":           {closedUsed(6), plain, true, true},
		"the filler, without a restart":         {closedUsed(6), plain, false, false},
		"so much filler that offers do not fit": {closedUsed(50), plain, true, false},
		"an excess reported as short by 1":      {counts(8, 2, 48), short, true, true},
	} {
		if all := miscounts(c.look, 56, c.status, c.recounted); (len(all) == 0) != c.sound {
			t.Errorf("%s: %q", what, all)
		}
	}
}

func TestUp(t *testing.T) {
	for states, want := range map[string]bool{"IDLE": true, "MIXED+PLANNED": true, "IDLE+DRAIN": false, "DOWN*": false,
		"": false} {
		l := oracle.Snapshot{}
		if states != "" {
			l.States = strings.Split(states, "+")
		}
		if up(l) != want {
			t.Errorf("up(%s) is %v", states, up(l))
		}
	}
}

func TestConfiguredTotals(t *testing.T) {
	got, err := configuredTotals(
		"NodeName=n1 CPUs=64 Gres=gpu:a100:14,mig:1g.5gb:0,mig:closed:56\nNodeName=mig-catalog1 Gres=mig:1g.5gb:14\n",
	)
	if err != nil || len(got) != 1 || got["n1"] != 56 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestExplainedEnds checks what explains the end of a run: an action on the job, or a fault on the run's node that was
// present at the time and can lead to this final state.
func TestExplainedEnds(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	c := &campaign{
		cluster: &cluster.Cluster{Dir: t.TempDir()},
		jobs:    map[string]job{"batch": {}, "step": {interactive: true}},
		causes: map[string][]cause{
			"batch":    {{at(100), "CANCELLED", "its user"}},
			"requeued": {{at(97), "REQUEUED", "its user"}, {at(103), "CANCELLED", "its user"}},
		},
		broken: []*breaking{
			{fault: fault{name: "lost", part: "gpu", ends: []string{"FAILED"}}, node: "n1", from: at(200), to: at(210)},
			{fault: fault{name: "kill", part: "slurmctld"}, from: at(300), to: at(310)},
		},
	}
	for _, one := range []struct {
		what, name, state, node string
		start, end              int
		want                    string
	}{
		{"cancelled", "batch", "CANCELLED", "n1", 95, 101, "its user"},
		{"failed when the user cancelled the job", "batch", "FAILED", "n1", 95, 101, ""},
		{"cancelled before the user's request", "batch", "CANCELLED", "n1", 80, 90, ""},
		{"cancelled during the requeue", "requeued", "CANCELLED", "n1", 95, 97, "its user"},
		{"cancelled, and requeued much later", "requeued", "CANCELLED", "n1", 80, 90, ""},
		{"on the node of a fault", "batch", "FAILED", "n1", 195, 205, "fault lost"},
		{"on another node", "batch", "FAILED", "n2", 195, 205, ""},
		{"before the fault", "batch", "FAILED", "n1", 150, 160, ""},
		{"an end that the fault does not explain", "batch", "TIMEOUT", "n1", 195, 205, ""},
		{"a step without slurmctld", "step", "FAILED", "n1", 299, 305, "fault kill"},
		{"a batch job without slurmctld", "batch", "FAILED", "n1", 299, 305, ""},
	} {
		got := c.explain(
			jobRun{name: one.name, state: one.state, nodes: []string{one.node}, start: at(one.start), end: at(one.end)},
		)
		if (one.want == "") != (got == "") || !strings.HasPrefix(got, one.want) {
			t.Errorf("%s: %q, want %q", one.what, got, one.want)
		}
	}
}

// TestLaunchedBefore checks that launchedBefore detects that slurmctld was killed between two launches with the same
// job id.
func TestLaunchedBefore(t *testing.T) {
	dir := t.TempDir()
	const text = "[2026-11-23T02:38:07.736] launch task StepId=555.0 request from UID:20001\n" +
		"[2026-11-23T02:38:20.000] Launching batch job 556 for UID 20002\n" +
		"[2026-11-23T02:38:27.866] Launching batch job 555 for UID 20002\n"
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log", "slurmd-n2.log"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	at := func(s int) time.Time { return time.Date(2026, 11, 23, 2, 38, s, 0, time.Local) }
	for _, c := range []struct {
		id, fault string
		from      int
		want      bool
	}{{"555", slurmctldKill, 11, true}, {"555", slurmctldKill, 5, false}, {"555", "slurmctld-stop", 11, false},
		{"556", slurmctldKill, 11, false}} {
		one := &campaign{
			cluster: &cluster.Cluster{Dir: dir},
			broken:  []*breaking{{fault: fault{name: c.fault}, from: at(c.from), to: at(c.from + 2)}},
		}
		if got := one.launchedBefore(jobRun{id: c.id, nodes: []string{"n1", "n2"}, start: at(27)}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestSharedNodes checks that a fault on the node of one component explains why the other components of a het job
// ended.
func TestSharedNodes(t *testing.T) {
	c := &campaign{jobs: map[string]job{"set": {kind: "het"}, "array": {kind: "array"}}}
	at := time.Unix(1e9, 0)
	for name, want := range map[string]string{"set": "[n1 n1 n2]", "array": "[n1]"} {
		runs := []jobRun{
			{name: name, nodes: []string{"n1"}, end: at},
			{name: name, nodes: []string{"n2"}, end: at.Add(time.Second)},
			{name: name, nodes: []string{"n3"}, end: at.Add(time.Minute)},
		}
		if got := fmt.Sprint(c.sharedNodes(runs[0], runs)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestQueue parses slurmctld's answers, and checks that runnable returns true only for jobs that wait for slices and
// nothing else.
func TestQueue(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)
	line := func(id, rest string) string {
		return "JobId=" + id + " JobName=user1-1 Priority=100 JobState=PENDING Reason=Resources Dependency=(null) " +
			"EligibleTime=2026-01-01T11:00:00 ReqNodeList=(null) NumNodes=1-1 OverSubscribe=OK AdminComment=a b  " +
			"StdErr=/x TresPerNode=gres:mig:2g.10gb:2,gres:gpu:2 " + rest + "\n"
	}
	for _, c := range []struct {
		what, text     string
		runnable, over bool
	}{
		{"waits for slices", line("1", ""), true, false},
		{"begins later", strings.Replace(line("1", ""), "T11:00", "T13:00", 1), false, false},
		{"depends", strings.Replace(line("1", ""), "(null)", "afterany:3", 1), false, false},
		{"depends on a held job", strings.Replace(line("1", ""), "(null)", "afterany:3(unfulfilled)", 1) +
			strings.Replace(line("3", ""), "Priority=100", "Priority=0", 1), false, true},
		{"depends on an array with a held task",
			strings.Replace(line("1", ""), "(null)", "afterany:3_*(unfulfilled)", 1) +
				strings.Replace(line("4", "ArrayJobId=3 ArrayTaskId=2"), "Priority=100", "Priority=0", 1), false, true},
		{"depends on a job that waits", strings.Replace(line("1", ""), "(null)", "afterany:3(unfulfilled)",
			1) + line("3", ""), false, false},
		{"held", strings.Replace(line("1", ""), "Priority=100", "Priority=0", 1), false, true},
		{"held by Caelum", strings.NewReplacer("Priority=100", "Priority=0", "=a b",
			"=caelum:held").Replace(line("1", "")), true, false},
		{"an exclusive job, and a node with a count of no job", strings.Replace(line("1", ""), "=OK", "=NO", 1), true,
			true},
		{"licences", strings.Replace(line("1", ""), "Resources", "Licenses", 1), false, false},
		{"a task of an array", line("4", "ArrayJobId=3 ArrayTaskId=2"), true, false},
		{"half a het job", line("1", "HetJobId=1 HetJobIdSet=1-2"), false, true},
		{"a whole het job", line("1", "HetJobId=1 HetJobIdSet=1-2") + line("2", "HetJobId=1 HetJobIdSet=1-2"), true,
			false},
	} {
		q, err := parseQueue(
			c.text + "look 0\nNodeName=n1 State=IDLE Gres=mig:1g.5gb:2 GresUsed=mig:1g.5gb:1\ndone 0\n",
		)
		if err != nil || len(q.jobs) == 0 || q.nodes["n1"].Used["1g.5gb"] != 1 || q.jobs[0].wants["2g.10gb"] != 2 ||
			q.jobs[0].nodes != 1 {
			t.Fatalf("%s: %+v, %v", c.what, q, err)
		}
		if got := q.runnable(q.jobs[0], now); got != c.runnable || q.never(q.jobs[0]) != c.over {
			t.Errorf("%s: runnable %v, never %v", c.what, got, q.never(q.jobs[0]))
		}
	}
}

// TestRoom checks that instances in use take room from a job, and that idle instances do not.
func TestRoom(t *testing.T) {
	n := node()
	for _, c := range []struct {
		wants map[string]int
		want  bool
	}{{map[string]int{"3g.20gb": 1}, true}, {map[string]int{"3g.20gb": 2}, false},
		{map[string]int{"7g.40gb": 1}, false}, {map[string]int{"1g.5gb": 3}, true}} {
		if got, err := n.fits(options{model: "A100-40GB", features: true}, "n1", c.wants); err != nil || got != c.want {
			t.Errorf("%v: %v, %v", c.wants, got, err)
		}
	}
}

// TestDrawRepeats checks that a seed always produces the same jobs, and that excluding a kind does not change the other
// jobs.
func TestDrawRepeats(t *testing.T) {
	jobs := func(kinds []string) (all []job) {
		rng := rand.New(rand.NewPCG(7, 1))
		for n := range 300 {
			all = append(all, draw(rng, kinds, "user1", n, []string{"5"}))
		}
		return all
	}
	all := jobs(allKinds())
	some, err := choose(allKinds(), nil, []string{"array", "het"})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for k, j := range jobs(some) {
		kinds[all[k].kind] = true
		if left := all[k].kind == "array" || all[k].kind == "het"; !left && !slices.Equal(j.args, all[k].args) ||
			left && j.kind != "slice" {
			t.Errorf("submission %d is %v, but %v without arrays and het jobs", k, all[k].args, j.args)
		}
	}
	if len(kinds) != len(jobKinds) {
		t.Errorf("drew %d of %d kinds", len(kinds), len(jobKinds))
	}
	if _, err := choose(allKinds(), []string{"no-such"}, nil); err == nil {
		t.Error("choose accepted an unknown kind")
	}
}

func TestRuns(t *testing.T) {
	runs := parseRuns(
		"12|user1-3|CANCELLED by 20001|0:15|1000|1010|n[1-2]|gres/gpu=1|cpu=1,gres/gpu=1|caelum:moved=0:1\n" +
			"13|user2-4|PENDING|0:0|Unknown|Unknown|None assigned|gres/gpu=1||\n" +
			"14|user2-5|REQUEUED|0:0|1000|1010|n1|gres/gpu=1|gres/gpu=1|x caelum:moved=9:1\n",
	)
	if len(runs) != 3 || runs[0].state != "CANCELLED" || !slices.Equal(runs[0].nodes, []string{"n1", "n2"}) ||
		runs[0].end.Unix() != 1010 ||
		!runs[1].live() || len(runs[1].nodes) != 0 ||
		!runs[1].end.IsZero() ||
		runs[0].noGPU ||
		runs[1].noGPU || moved(runs[0], "slice") != "" || moved(runs[2], "slice") == "" {
		t.Errorf("%+v", runs)
	}
}

// TestLost checks that lost returns true for a job without a process only after a fault in one of Slurm's daemons.
func TestLost(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	j := queued{raw: "1", state: "RUNNING", on: []string{"n1"}, started: at}
	killed := &breaking{fault: fault{part: "slurmctld"}, from: at.Add(time.Second), to: at.Add(2 * time.Second)}
	if c := (&campaign{broken: []*breaking{killed}}); !c.lost(j) {
		t.Error("lost returned false for a job that slurmctld did not end")
	}
	if c := (&campaign{broken: []*breaking{killed}, last: snapshot{Procs: procs()}}); c.lost(j) {
		t.Error("lost returned true for a job with a process")
	}
	if c := (&campaign{}); c.lost(j) {
		t.Error("lost returned true without a fault")
	}
}

func TestFailedProlog(t *testing.T) {
	for text, want := range map[string]string{
		"chaos [root@2026-11-30T09:00:00]":                                               "",
		"Prolog error [root@2026-11-30T09:00:00]\n":                                      "false",
		"caelum: job 1: no agent":                                                        "false",
		"caelum: job 1: ledger /var/lib/caelum/ledger.db: disk I/O error [root@2026-11]": "true",
	} {
		reason, named := failedProlog("NodeName=n1 State=IDLE+DRAIN Reason=" + text)
		if (reason == "") != (want == "") || want != "" && fmt.Sprint(named) != want {
			t.Errorf("%s: %q, %v", text, reason, named)
		}
	}
	if reason, _ := failedProlog("NodeName=n1 State=IDLE Comment=x"); reason != "" {
		t.Errorf("without a reason: %q", reason)
	}
}
