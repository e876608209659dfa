package oracle

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// recorded returns testdata/run, the record of 24 jobs with a 4 s prolog on two nodes with two A100-40GB GPUs each. It
// has only the lines that the oracle reads. The recorded agents did not log when they read slurmctld's state before a
// write, so the record assumes that each read took place 0.3 s before its write.
func recorded(t *testing.T) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	dir := os.DirFS("testdata/run")
	names, err := fs.Glob(dir, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return files
}

func checked(t *testing.T, files fs.FS) *Report {
	t.Helper()
	run, err := Read(files)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Check(run)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecordedRunIsSound(t *testing.T) {
	r := checked(t, recorded(t))
	if len(r.Findings) > 0 {
		t.Errorf("%v", r)
	}
	for what, n := range map[string][2]int{
		"writes": {r.Writes, 52}, "snapshots": {r.Snapshots, 108},
		"snapshots of a node that starts no job": {r.Shut, 4},

		"starts": {r.Starts, 23}, "leases": {r.Leases, 26}, "created": {r.Created, 25}, "destroyed": {r.Destroyed, 18},
		"refused": {r.Refused, 2}, "processes": {r.Processes, 26}, "seen": {r.Seen, 26},
		"runs not leased yet": {r.Waits, 71},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", what, n[0], n[1])
		}
	}
}

// edit describes a forgery: it replaces the first occurrence of old that follows after.
type edit struct{ file, after, old, new string }

func (e edit) apply(t *testing.T, files fstest.MapFS) {
	t.Helper()
	text := string(files[e.file].Data)
	at := strings.Index(text, e.after)
	if at < 0 {
		t.Fatalf("%s has no %q", e.file, e.after)
	}
	at += len(e.after)
	k := strings.Index(text[at:], e.old)
	if k < 0 {
		t.Fatalf("%s has no %q after %q", e.file, e.old, e.after)
	}
	at += k
	files[e.file] = &fstest.MapFile{Data: []byte(text[:at] + e.new + text[at+len(e.old):])}
}

// At 57:34.074, n1 writes one free 2g.10gb. By then, slurmctld has started jobs with 3g.20gb x2, 2g.10gb, 1g.10gb and
// 1g.5gb x2 on n1, none of which has a lease. These jobs leave only one unit of the GPUs free.
const (
	waitingWrite = `"at":1795237054074225312`
	waitingSet   = "[2026-11-21T04:57:34.076]"
)

// extraWrite is a write of Extra alone, 1 ms after waitingWrite. It repeats the counts of waitingWrite.
const extraWrite = `{"at":1795237054077540036,"done":1795237054078540036,"extra_only":true,"gres":"gpu:a100:14,` +
	`mig:1g.5gb:2,mig:1g.10gb:1,mig:2g.10gb:2,mig:3g.20gb:2,mig:4g.20gb:0,mig:7g.40gb:0,mig:closed:49",` +
	`"level":"info","msg":"published","node":"n1","phase":"raise","read":1795237053774225312,` +
	`"time":"2026-11-21T04:57:34.078540036Z","used":"gpu:a100:6,mig:1g.5gb:2,mig:1g.10gb:1,mig:2g.10gb:1,` +
	`mig:3g.20gb:2,mig:4g.20gb:0,mig:7g.40gb:0,mig:closed:0"}` + "\n"

// At 57:42.694, jobs hold leases for 2g.10gb x2, 1g.10gb and 1g.5gb on GPU 1 of n1, and n1 writes one free 1g.5gb and
// one free 4g.20gb.
const leasedWrite = `no slice: the job is ending","node":"n1","time":"2026-11-21T04:57:42.647`

// Job 1 has leased a 3g.20gb slice, which is larger than a 2g.10gb slice and smaller than a 4g.20gb slice.
const (
	chosenJob     = "1|COMPLETED|1795237051|1795237058|1|billing=1,cpu=1,gres/gpu=1,"
	chosenLine    = chosenJob + "gres/mig:3g.20gb=1,gres/mig=1,node=1"
	chosenLarger  = chosenJob + "gres/mig:2g.10gb=1,gres/mig=1,node=1"
	chosenSmaller = chosenJob + "gres/mig:4g.20gb=1,gres/mig=1,node=1"
)

// Job 2 releases its slice at 57:38.151.
const (
	releasedLine = `{"job":2,"level":"info","msg":"released","node":"n1","time":"2026-11-21T04:57:38.15119417Z"}` + "\n"
	inUseLine    = `{"gpu":1,"job":2,"level":"warning","msg":"2g.10gb at 4 is in use by processes [1484] ` +
		`that belong to no job; ` +
		`its units will not be offered until these processes end",` +
		`"node":"n1","time":"2026-11-21T04:57:38.150Z","uuid":"MIG-b9a916e7-f1a0-5519-8305-1cd072051e20"}` + "\n"
	noLongerLine = `{"gpu":1,"level":"info","msg":"2g.10gb at 4 is no longer in use","node":"n1",` +
		`"time":"2026-11-21T04:57:38.153Z"}` + "\n"
)

// TestForgeries changes one detail of the record in each test case. The oracle must report the change and its
// consequences.
func TestForgeries(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits []edit
		rules string
	}{
		{"an offer that ignores the jobs that wait for their prolog", []edit{
			{"n1.agent", waitingWrite, "mig:2g.10gb:2", "mig:2g.10gb:3"},
			{"n1.agent", waitingWrite, "mig:closed:49", "mig:closed:48"},
			{"slurmctld", waitingSet, "mig:2g.10gb:2", "mig:2g.10gb:3"},
			{"slurmctld", waitingSet, "mig:closed:49", "mig:closed:48"},
		}, "offer"},
		{"an offer that ignores a waiting job with the same profile", []edit{
			{"n1.agent", waitingWrite, "mig:3g.20gb:2", "mig:3g.20gb:3"},
			{"n1.agent", waitingWrite, "mig:closed:49", "mig:closed:48"},
			{"slurmctld", waitingSet, "mig:3g.20gb:2", "mig:3g.20gb:3"},
			{"slurmctld", waitingSet, "mig:closed:49", "mig:closed:48"},
		}, "offer"},
		{"a write with a used count that is too low", []edit{
			{
				"n1.agent", waitingWrite,
				"mig:1g.10gb:1,mig:2g.10gb:1,mig:3g.20gb:2", "mig:1g.10gb:1,mig:2g.10gb:1,mig:3g.20gb:1",
			},
		}, "offer"},
		{"an offer that does not fit in addition to the leases", []edit{
			{"n1.agent", leasedWrite, "mig:7g.40gb:0,mig:closed:48", "mig:7g.40gb:1,mig:closed:47"},
			{"slurmctld", "04:57:42.69", "mig:7g.40gb:0,mig:closed:48", "mig:7g.40gb:1,mig:closed:47"},
		}, "offer"},
		{"slurmctld has more free slices than the agent wrote", []edit{
			{"looks", "1795237054", "mig:3g.20gb:2", "mig:3g.20gb:4"},
		}, "snapshot"},
		{"slurmctld has a used count that is too low", []edit{
			{
				"looks", "State=MIXED",
				"mig:3g.20gb:2,mig:4g.20gb:0,mig:7g.40gb:0,mig:closed:0",
				"mig:3g.20gb:0,mig:4g.20gb:0,mig:7g.40gb:0,mig:closed:0",
			},
		}, "snapshot"},
		{"a type rises in the lower phase", []edit{
			{"n1.agent", waitingWrite, `"phase":"raise"`, `"phase":"lower"`},
		}, "phase"},
		{"the total changes", []edit{
			{"n1.agent", waitingWrite, "mig:closed:49", "mig:closed:50"},
			{"slurmctld", waitingSet, "mig:closed:49", "mig:closed:50"},
		}, "total"},
		{"a profile of another GPU model", []edit{
			{"n1.agent", waitingWrite, "mig:7g.40gb:0,mig:closed:49", "mig:7g.80gb:1,mig:closed:48"},
			{"slurmctld", waitingSet, "mig:7g.40gb:0,mig:closed:49", "mig:7g.80gb:1,mig:closed:48"},
		}, "offer profile"},
		{"a write that no agent logged", []edit{
			{"n1.agent", waitingWrite, `"msg":"published"`, `"msg":"something"`},
		}, "logged phase"},
		{"a write that slurmctld did not log", []edit{
			{"slurmctld", waitingSet, "_update_node_gres", "something"},
		}, "logged"},
		{"a write that slurmctld did not log and that failed for the agent", []edit{
			{"slurmctld", waitingSet, "_update_node_gres", "something"},
			{"n1.agent", waitingWrite, `"msg":"published"`, `"msg":"couldn't write the offers"`},
			{"n1.agent", waitingWrite, `"done":`, `"was":`},
		}, ""},
		{"a write of Extra alone", []edit{
			{"n1.agent", waitingWrite, "\n", "\n" + extraWrite},
		}, ""},
		{"a write of Extra alone while slurmctld has other counts", []edit{
			{"n1.agent", waitingWrite, "\n", "\n" + extraWrite},
			{"n1.agent", `"extra_only":true`, "mig:2g.10gb:2", "mig:2g.10gb:1"},
			{"n1.agent", `"extra_only":true`, "mig:closed:49", "mig:closed:50"},
		}, "logged phase"},
		{"an agent that wrongly found an excess", []edit{
			{"n1.agent", "", releasedLine, releasedLine + `{"before":null,"level":"warning","msg":"slurmctld counts ` +
				`as used some slices that no job holds; raised the totals by the same number","node":"n1",` +
				`"now":{"4g.20gb":1},"time":"2026-11-21T04:57:38.2Z"}` + "\n"},
		}, "excess"},
		{"a job leased a profile other than the one that slurmctld allocated", []edit{
			{"sacct", "1|COMPLETED|1795237051|1795237058|1|", "mig:3g.20gb=1", "mig:2g.10gb=1"},
		}, "carved"},
		{"a job leased a larger slice than the profile that job_submit.lua chose", []edit{
			{"sacct", "", chosenLine + "|", chosenLarger + "|caelum:sized=2g.10gb"},
		}, ""},
		{"a job leased a smaller slice than the profile that job_submit.lua chose", []edit{
			{"sacct", "", chosenLine + "|", chosenSmaller + "|caelum:sized=4g.20gb"},
		}, "carved"},
		{"a job leased less than slurmctld allocated", []edit{
			{"sacct", "", "mig:1g.5gb=2", "mig:1g.5gb=3"},
		}, "carved offer snapshot"},
		{"a job that ran without a lease", []edit{
			{"n1.agent", "", "leased 2g.10gb", "something 2g.10gb"},
		}, "carved offer process seen snapshot"},
		{"a lease of a job that slurmctld did not start", []edit{
			{"slurmctld", "", "Allocate JobId=23 ", "something JobId=23 "},
			{"sacct", "", "23|COMPLETED|1795237067", "23|PENDING|Unknown"},
		}, "carved"},
		{"a job that the agent refused because there was no room", []edit{
			{"n1.agent", "", "no slice: the job is ending", "no slice: no room on n1 for 1g.10gb:1"},
		}, "carved"},
		{"an instance that overlaps another instance", []edit{
			{"n1.emulator", "", "1795237055991298773", "1795237055990000000 create-gi gpu=1 gi=12 " +
				"profile=1g.5gb start=5 size=1 uuid=- rc=SUCCESS ci=- pid=-\n" +
				"1795237057990000000 destroy-gi gpu=1 gi=12 " +
				"profile=1g.5gb start=5 size=1 uuid=- rc=SUCCESS ci=- pid=-\n1795237055991298773"},
		}, "overlap"},
		{"an instance destroyed during its lease", []edit{
			{"n1.emulator", "1795237056078096664", "\n", "\n1795237056080000000 destroy-gi gpu=1 gi=5 " +
				"profile=2g.10gb start=4 size=2 uuid=- rc=SUCCESS ci=- pid=-\n"},
		}, "instance"},
		{"two jobs leased overlapping slices", []edit{
			{"n1.agent", "", "leased 3g.20gb at 0", "leased 3g.20gb at 4"},
		}, "instance offer snapshot twice"},
		{"a process on a slice that its job has released", []edit{
			{"n1.emulator", "1795237056040886442", "1795237058", "1795237068"},
		}, "offer process snapshot"},
		{"a process that ends shortly after its job", []edit{
			{"n1.emulator", "", "1795237058141189706 process-exit", "1795237058152000000 process-exit"},
		}, "process"},
		{"a process that ends shortly after its job, and that the agent detected", []edit{
			{"n1.emulator", "", "1795237058141189706 process-exit", "1795237058152000000 process-exit"},
			{"n1.agent", "", releasedLine, inUseLine + releasedLine + noLongerLine},
		}, ""},
		{"a process on a slice without a lease", []edit{
			{"n1.emulator", "1795237056040886442 process-start", "uuid=MIG-", "uuid=MIG-f"},
		}, "process"},
		{"a job that sees the slice of another job", []edit{
			{"seen", "", "ran job=1 ", "ran job=2 "},
		}, "seen"},
		{"an instance on the GPU that the agent does not show", []edit{
			{"n1.final", "", "0 1g.10gb 6 idle\n", ""},
		}, "end"},
		{"an instance that only the agent shows", []edit{
			{"n2.final", "", "0 3g.20gb 0 idle\n", "0 3g.20gb 0 idle\n0 1g.5gb 6 idle\n"},
		}, "end"},
		{"a slice that is still leased after all jobs have ended", []edit{
			{"n2.final", "", "0 3g.20gb 0 idle", "0 3g.20gb 0 leased"},
		}, "end"},
		{"a lease that was never released", []edit{
			{"n1.agent", `"job":23,"level":"info","msg":"leased`, `"msg":"released"`, `"msg":"something"`},
		}, "end instance offer snapshot twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := recorded(t)
			for _, e := range c.edits {
				e.apply(t, files)
			}
			r := checked(t, files)
			if got := strings.Join(r.Rules(), " "); got != c.rules {
				t.Errorf("found %q, want %q\n%v", got, c.rules, r)
			}
		})
	}
}

// TestStartBetweenReadAndWrite starts a job after the agent has read the used counts but before it writes, so the write
// seems to leave the job's slice free. The oracle must accept it, even if the job gets its lease before the write and
// ends within the same second.
func TestStartBetweenReadAndWrite(t *testing.T) {
	const second = int64(time.Second)
	begin, write := 10*second+300e6, 10*second+500e6
	run := Run{
		Starts: []Start{
			{
				Job:      1,
				Node:     "n1",
				At:       begin,
				End:      10 * second,
				State:    "COMPLETED",
				Profiles: map[string]int{"4g.20gb": 1},
			},
		},
		Sets: []Set{{Node: "n1", Gres: "mig:4g.20gb:1", At: write + 1e6}},
		Nodes: []Node{{
			Name: "n1", Model: "A100-40GB", GPUs: 1,
			Journal: Journal{
				Writes: []Write{
					{
						Phase: "raise",
						Gres:  "mig:4g.20gb:1",
						Total: map[string]int{"4g.20gb": 1},
						Used:  map[string]int{},
						Read:  begin - 1e6,
						At:    write,
						Done:  write + 2e6,
					},
				},
				Leases: []Lease{{Job: 1, UUID: "MIG-1", Profile: "4g.20gb", From: begin + 50e6, To: write + 100e6}},
			},
			Hardware: Hardware{
				Instances: []Instance{
					{GI: 1, Profile: "4g.20gb", Size: 4, UUID: "MIG-1", Born: begin + 40e6, Died: Never},
				},
			},
		}},
	}
	r, err := Check(run)
	if err != nil || len(r.Findings) > 0 {
		t.Errorf("%v %v", err, r)
	}
	run.Nodes[0].Writes[0].Read = begin + 2e6 // after the job's start, so the write offers the job's slice again
	if r, err = Check(run); err != nil || strings.Join(r.Rules(), " ") != "offer" {
		t.Errorf("%v %v", err, r)
	}
}

// TestUnreadable checks that Read returns an error for a record that contradicts itself.
func TestUnreadable(t *testing.T) {
	for name, e := range map[string]edit{
		"a start without a record in sacct":  {"sacct", "", "23|COMPLETED|1795237067", "23|PENDING|Unknown"},
		"a run that slurmctld did not start": {"slurmctld", "", "Allocate JobId=23 ", "something JobId=23 "},
		"a start at another time":            {"sacct", "", "23|COMPLETED|1795237067", "23|COMPLETED|1795237017"},
		"a truncated line of the agent":      {"n1.agent", waitingWrite, `mig:closed`, "\n"},
		"a GPU that fell off the bus": {
			"n1.emulator", "", "1795237055991298773",
			"1795237055990000000 lose gpu=0 gi=- rc=SUCCESS\n1795237055991298773",
		},
		"an unknown word in the list of nodes": {"run", "", "node", "nodes"},
	} {
		files := recorded(t)
		e.apply(t, files)
		if _, err := Read(files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLinesOfSlurmctld(t *testing.T) {
	log := `[2026-11-21T04:57:31.900] _slurm_rpc_submit_batch_job: JobId=6 InitPrio=4294901757 usec=301
[2026-11-21T04:57:31.950] sched: Allocate JobId=4_1(6) NodeList=n2 #CPUs=1 Partition=gpu
[2026-11-21T04:57:32.001] sched/backfill: _start_job: Started JobId=106 in gpu on n[1-2]
[2026-11-21T04:57:33.000] sched: _slurm_rpc_allocate_resources JobId=7 NodeList=(null) usec=317
[2026-11-21T04:57:34.000] sched: _slurm_rpc_allocate_resources JobId=8 NodeList=n[1,3-4] usec=31
[2026-11-21T04:57:35.000] _update_node_gres: nodes n[1-2] gres set to: gpu:a100:14,mig:closed:56
[2026-11-21T04:57:36.000] sched/backfill: _start_job: HETJOB: Started JobId=9 in gpu on n1
`
	c, err := ReadSlurmctldLog(strings.NewReader(log), time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	at := func(ms int) int64 { return time.Date(2026, 11, 21, 4, 57, 31, ms*1e6, time.UTC).UnixNano() }
	want := []Allocation{
		{6, []string{"n2"}, at(950)},
		{106, []string{"n1", "n2"}, at(1001)},
		{8, []string{"n1", "n3", "n4"}, at(3000)},
		{9, []string{"n1"}, at(5000)}, // 26.05
	}
	if !slices.EqualFunc(c.Starts, want, func(a, b Allocation) bool {
		return a.Job == b.Job && a.At == b.At && slices.Equal(a.Nodes, b.Nodes)
	}) {
		t.Errorf("starts %v, want %v", c.Starts, want)
	}
	if len(c.Sets) != 2 || c.Sets[1] != (Set{"n2", "gpu:a100:14,mig:closed:56", at(4000)}) {
		t.Errorf("sets %v", c.Sets)
	}
	if len(c.Submits) != 1 || c.Submits[6] != at(900) {
		t.Errorf("submits %v", c.Submits)
	}
	got := slicesOf("gpu:a100:2(IDX:0,2),mig:1g.5gb:1,mig:1g.5gb:2,mig:closed:3")
	if !maps.Equal(got, map[string]int{"1g.5gb": 3, "closed": 3}) {
		t.Errorf("slices %v", got)
	}
}

// TestDelays checks that a delay begins with the offer or with a later submission, and that Delays ignores requeued
// runs and jobs without a submission.
func TestDelays(t *testing.T) {
	const second = int64(time.Second)
	one := map[string]int{"1g.5gb": 1}
	run := Run{
		Submits: map[uint32]int64{1: 1 * second, 2: 5 * second, 3: 1 * second},
		Starts: []Start{
			{Job: 1, Node: "n1", At: 4 * second, Profiles: one}, {Job: 2, Node: "n1", At: 6 * second, Profiles: one},
			{
				Job:      3,
				Node:     "n1",
				At:       9 * second,
				Profiles: one,
				Requeued: true,
			}, {Job: 4, Node: "n1", At: 9 * second, Profiles: one},
		},
		Nodes: []Node{{Name: "n1", Journal: Journal{Writes: []Write{
			{
				Total: map[string]int{"1g.5gb": 1},
				At:    2 * second,
				Done:  2*second + 1,
			}, {Total: map[string]int{"1g.5gb": 2}, At: 3 * second, Done: 3*second + 1},
			{Total: map[string]int{"1g.5gb": 1}, At: 7 * second, Done: 7*second + 1},
		}}}},
	}
	starts, longest := Delays(run)
	if !slices.Equal(starts, []time.Duration{time.Second - 1, time.Second}) || longest["1g.5gb"] != 3*time.Second {
		t.Errorf("%v, longest %v", starts, longest)
	}
}
