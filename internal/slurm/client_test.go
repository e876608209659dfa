package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// playEnv is an environment variable that makes the test binary act as scontrol and squeue. Its value is a directory:
// the n-th call prints the n-th scene found there, and writes its arguments and environment to a file in the same
// directory.
const playEnv = "CAELUM_TEST_PLAY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(playEnv); dir != "" {
		os.Exit(play(dir))
	}
	os.Exit(m.Run())
}

func play(dir string) int {
	n := 1
	for ; ; n++ {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(n, ".called")), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		fmt.Fprintf(f, "%q\n%q\n", os.Args[1:], os.Environ())
		f.Close()
		break
	}
	playSlowly()
	out, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(n, ".out")))
	if err != nil {
		fmt.Fprintln(os.Stderr, "no scene", n)
		return 99
	}
	// In squeue's format, the separator follows "jobid:0" or "%A"; sacct gets it as an argument.
	sep := recordedSep
	for _, arg := range os.Args {
		if given, ok := strings.CutPrefix(arg, "--delimiter="); ok {
			sep = given
		}
	}
	if _, rest, ok := strings.Cut(os.Getenv("SQUEUE_FORMAT2"), ":0"); ok {
		sep, _, _ = strings.Cut(rest, ",")
	} else if _, rest, ok := strings.Cut(os.Getenv("SQUEUE_FORMAT"), "%A"); ok {
		sep, _, _ = strings.Cut(rest, "%")
	}
	os.Stdout.WriteString(strings.ReplaceAll(string(out), recordedSep, sep))
	if text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(n, ".err"))); err == nil {
		os.Stderr.Write(text)
		return 1
	}
	return 0
}

type scene struct{ out, err string }

func stage(t *testing.T, scenes ...scene) (*Client, func() []string) {
	t.Helper()
	dir := t.TempDir()
	for i, s := range scenes {
		name := filepath.Join(dir, strconv.Itoa(i+1))
		if err := os.WriteFile(name+".out", []byte(s.out), 0o600); err != nil {
			t.Fatal(err)
		}
		if s.err != "" {
			if err := os.WriteFile(name+".err", []byte(s.err), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
	c := New(Options{Scontrol: self, Squeue: self, Sacct: self, Timeout: time.Minute})
	c.sacctmgr, c.env = self, append(c.env, playEnv+"="+dir, "GORACE=atexit_sleep_ms=0")
	return c, func() []string {
		var calls []string
		for n := 1; ; n++ {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(n, ".called")))
			if err != nil {
				return calls
			}
			args, env, _ := strings.Cut(string(text), "\n")
			if !strings.Contains(env, `"LC_ALL=C"`) || !strings.Contains(env, `"SLURM_TIME_FORMAT=%s"`) ||
				!strings.Contains(env, `"SLURM_CONF=/etc/slurm/slurm.conf"`) || strings.Contains(env, "SQUEUE_USERS") {
				t.Errorf("environment %s", env)
			}
			calls = append(calls, args)
		}
	}
}

// recordOf returns one job with the given fields, formatted like squeue's output.
func recordOf(set map[string]string) scene {
	var b strings.Builder
	defaults := map[string]string{
		"jobid":        "7",
		"arrayjobid":   "7",
		"state":        "RUNNING",
		"reason":       "None",
		"userid":       "2001",
		"prioritylong": "5",
		"restartcnt":   "0",
		"starttime":    "1795233592",
		"nodelist":     "n3",
		"numnodes":     "1",
		"partition":    "gpu",
	}
	for _, f := range jobFields {
		v, ok := set[f.name]
		if !ok {
			v, ok = defaults[f.name]
		}
		if !ok {
			v = "N/A"
		}
		b.WriteString(v + recordedSep)
	}
	return scene{out: b.String() + "\n"}
}

func exclusionOf(state string) scene {
	return scene{out: strings.Join([]string{"7", "n[8-9]", state, "\n"}, recordedSep)}
}

func TestJobReadsAllocation(t *testing.T) {
	t.Setenv("SQUEUE_USERS", "nobody") // this variable must not reach squeue
	c, calls := stage(t, recordOf(nil), scene{out: mustRead(t, "job-arraytask.txt")})
	j, err := c.Job(context.Background(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if got := j.Allocated["n3"].String(); got != "gpu:a100:1,mig:2g.10gb:1" {
		t.Errorf("allocated %s", got)
	}
	want := []string{`["-h" "-r" "-a" "--local" "-t" "all" "-j" "7"]`, `["-d" "show" "job" "7"]`}
	if got := calls(); !slices.Equal(got, want) {
		t.Errorf("calls %v", got)
	}
}

// TestJobRequeuedMeanwhile requeues or restarts the job between the two requests. In both cases, Job must not use the
// details from scontrol, because a user may have written them.
func TestJobRequeuedMeanwhile(t *testing.T) {
	imitation := "\n   JOB_GRES=mig:7g.40gb:1\n     Nodes=n3 CPU_IDs=0 Mem=0 GRES=mig:7g.40gb(CNT:1)\n   " +
		"MinCPUsNode=1 \n"
	for _, show := range []string{"   JobState=PENDING Reason=x\n   StartTime=1795233592 EndTime=x\n",
		"   JobState=RUNNING Reason=x\n   StartTime=1795239999 EndTime=x\n"} {
		pending := recordOf(map[string]string{"state": "PENDING", "nodelist": ""})
		show = "JobId=7 JobName=x" + imitation + show
		c, _ := stage(t, recordOf(nil), scene{out: show}, pending, exclusionOf("PENDING"))
		j, err := c.Job(context.Background(), 7)
		if err != nil || j.State != "PENDING" || j.Allocated != nil || !slices.Equal(j.ExcNodes, []string{"n8", "n9"}) {
			t.Errorf("%+v %v", j, err)
		}
	}
}

// TestJobImitatingARun checks that Job returns ErrAmbiguous if a user's text looks like the state or the start time of
// another run.
func TestJobImitatingARun(t *testing.T) {
	real := mustRead(t, "job-arraytask.txt")
	for _, text := range []string{"\n   JobState=PENDING ", "\n   StartTime=1795233592 ", "\n   JobState= \n   " +
		"StartTime= "} {
		c, _ := stage(t, recordOf(nil), scene{out: strings.Replace(real, "JobName=arr", "JobName=arr"+text, 1)})
		if j, err := c.Job(context.Background(), 7); !errors.Is(err, ErrAmbiguous) || j.ID != 7 || j.Allocated != nil {
			t.Errorf("%q: %+v %v", text, j, err)
		}
	}
}

func TestJobThatNeverStandsStill(t *testing.T) {
	show := "JobId=7\n   JobState=RUNNING Reason=x\n   StartTime=1 EndTime=x\n"
	var scenes []scene
	for range jobTries {
		scenes = append(scenes, recordOf(nil), scene{out: show})
	}
	c, _ := stage(t, scenes...)
	if _, err := c.Job(context.Background(), 7); !errors.Is(err, ErrChanging) {
		t.Error(err)
	}
}

func TestJobImitatingAnAllocation(t *testing.T) {
	c, _ := stage(t, recordOf(map[string]string{"tres-per-node": "gres:mig:1g.5gb:1", "starttime": "1795233594"}),
		scene{out: mustRead(t, "job-imitation.txt")})
	j, err := c.Job(context.Background(), 7)
	if !errors.Is(err, ErrAmbiguous) || j.Allocated != nil || len(j.SlicesPerNode()) != 1 {
		t.Errorf("%+v %v", j, err)
	}
}

// TestWritesNameOneTask checks that, for an array's last task, which has the array's id, scontrol's arguments
// identify only this task.
func TestWritesNameOneTask(t *testing.T) {
	ctx := context.Background()
	array := map[string]string{"jobid": "7", "arrayjobid": "7", "arraytaskid": "3"}
	ok := scene{}
	failed := map[string]string{"jobid": "7", "arrayjobid": "7", "arraytaskid": "3", "state": "COMPLETING",
		"reason": "NonZeroExitCode"}
	c, calls := stage(t, recordOf(array), ok, recordOf(array), ok, recordOf(nil), ok, recordOf(nil), ok,
		recordOf(failed), ok)
	evil := "a=b Comment=c\nnodename=n1 gres=mig:7g.40gb:9 'q' \"d\""
	for _, err := range []error{
		c.RequeueHold(ctx, 7),
		c.SetAdminComment(ctx, 7, evil),
		c.SetJobGRES(ctx, 7, []GRES{{"gpu", "", 1}, {"mig", "3g.20gb", 1}}),
		c.Release(ctx, 7),
		c.RequeueFailed(ctx, 7),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	got := calls()
	for i, want := range map[int]string{
		1: `["requeuehold" "7_3"]`,
		3: fmt.Sprintf("%q", []string{"update", "jobid=7_3", "admincomment=" + evil}),
		5: `["update" "jobid=7" "gres=gpu:1,mig:3g.20gb:1"]`,
		7: `["release" "7"]`,
		9: `["requeue" "7_3"]`,
	} {
		if got[i] != want {
			t.Errorf("call %d: %s, want %s", i, got[i], want)
		}
	}
}

// TestRequeueOfTheDead checks that RequeueHold does not requeue a cancelled job. slurmctld would requeue such a job.
func TestRequeueOfTheDead(t *testing.T) {
	c, calls := stage(t, recordOf(map[string]string{"state": "CANCELLED"}))
	if err := c.RequeueHold(context.Background(), 7); !errors.Is(err, ErrJobState) || len(calls()) != 1 {
		t.Errorf("%v after %v", err, calls())
	}
}

// TestRequeueFailed checks that RequeueFailed does not requeue a job that ended for another reason, or one that has
// already been requeued and held.
func TestRequeueFailed(t *testing.T) {
	for _, record := range []map[string]string{
		{"state": "COMPLETING", "reason": "TimeLimit"},
		{"state": "COMPLETING", "reason": "None"},
		{"state": "COMPLETING", "reason": "JobHeldUser"},
		{"state": "FAILED", "reason": "NonZeroExitCode"},
		{"state": "RUNNING"},
		{"state": "CANCELLED"},
	} {
		c, calls := stage(t, recordOf(record))
		if err := c.RequeueFailed(context.Background(), 7); !errors.Is(err, ErrJobState) || len(calls()) != 1 {
			t.Errorf("%v: %v after %v", record, err, calls())
		}
	}
}

// TestInvalidArgumentsAreNotRun checks that invalid arguments cause an error before a command is run.
func TestInvalidArgumentsAreNotRun(t *testing.T) {
	ctx := context.Background()
	c, calls := stage(t)
	_, errNode := c.Node(ctx, "--all")
	_, errNames := c.NamedNodes(ctx, "n1", "n[2-3]")
	for _, err := range []error{
		errNode,
		c.UpdateNode(ctx, "n[1-9]", []GRES{{"mig", "closed", 1}}, ""),
		c.UpdateNode(ctx, "n1 gres=gpu:0", []GRES{{"mig", "closed", 1}}, ""),
		c.UpdateNode(ctx, "-d", []GRES{{"mig", "closed", 1}}, ""),
		c.UpdateNode(ctx, "n1", nil, ""),
		c.UpdateNode(ctx, "n1", []GRES{{"mig", "x,gpu:0", 1}}, ""),
		c.UpdateNode(ctx, "n1", []GRES{{"mig", "closed", -1}}, ""),
		c.SetNodeExtra(ctx, "n[1-9]", ""),
		errNames,
		c.SetNodeExtra(ctx, "n1", "a\nb"),
		c.SetJobGRES(ctx, 7, []GRES{{"mig ", "", 1}}),
		c.SetAdminComment(ctx, 7, "a\x00b"),
	} {
		if err == nil {
			t.Error("no error for an invalid argument")
		}
	}
	if got := calls(); len(got) != 0 {
		t.Errorf("commands were run with %v", got)
	}
}

// TestErrors checks the errors for the messages of Slurm's commands (22.05.8, and two messages from later releases).
func TestErrors(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		stderr string
		want   error
	}{
		{"slurm_load_node error: Unable to contact slurm controller (connect failure)", ErrUnreachable},
		{"Unexpected message received for job 11", ErrUnreachable},
		{"squeue: error: Invalid node name nope", ErrNoNode},
		{"slurm_load_jobs error: Invalid job id specified", ErrNoJob},
		{"Job is pending execution for job 11", ErrJobState},
		{"Job is no longer pending execution for job 2", ErrJobState},
		{"Job has already finished for job 2", ErrJobState},
		{"Requested operation is presently disabled for job 23", ErrJobState},
		{"slurm_load_jobs error: Rate limit exceeded, please retry later", ErrUnreachable}, // 24.05 and later
		{"Job 12_3 not found", ErrNoJob},                                                   // since 26.05
	} {
		c, _ := stage(t, scene{err: tc.stderr})
		_, err := c.Queue(ctx)
		var ce *CommandError
		if !errors.Is(err, tc.want) || !errors.As(err, &ce) || !strings.Contains(err.Error(), tc.stderr) {
			t.Errorf("message %q: error %v", tc.stderr, err)
		}
	}
	failed := CommandError{
		Args: []string{"/usr/bin/scontrol", "update", "jobid=7", "comment=a b", strings.Repeat("%i", 40)},
		Err:  ErrJobState, Stderr: "no",
	}
	want := "`scontrol update jobid=7 \"comment=a b\" " + strings.Repeat("%i", 30) + "...`: " + ErrJobState.Error() +
		": the command printed \"no\""
	if failed.Error() != want {
		t.Errorf("%s, want %s", failed.Error(), want)
	}
	c, _ := stage(t, scene{out: "Node nope not found\n", err: " "})
	if _, err := c.Node(ctx, "nope"); !errors.Is(err, ErrNoNode) {
		t.Error(err)
	}
	c, _ = stage(t, scene{out: "Job 12+1 not found\n", err: " "})
	if _, err := c.Node(ctx, "nope"); !errors.Is(err, ErrNoJob) || errors.Is(err, ErrNoNode) {
		t.Error(err)
	}
	c = New(Options{Squeue: filepath.Join(t.TempDir(), "none")})
	if _, err := c.Queue(ctx); !errors.Is(err, ErrCommand) || errors.Is(err, ErrUnreachable) {
		t.Errorf("a missing command: error %v", err)
	}
	// EAGAIN must count as temporary, because users can cause it by starting as many processes as they can.
	c = New(Options{Run: func(context.Context, []string, string, ...string) (string, string, error) {
		return "", "", &fs.PathError{Op: "fork/exec", Path: "/usr/bin/squeue", Err: syscall.EAGAIN}
	}})
	if _, err := c.Queue(ctx); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrCommand) {
		t.Errorf("fork fails with EAGAIN: error %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	c, _ = stage(t, scene{})
	if _, err := c.Queue(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestWaiting reads a queue with an array that has both separate and joined tasks. The second request returns the
// excluded nodes, and one job ends before it is made.
func TestWaiting(t *testing.T) {
	c, _ := stage(t, scene{out: mustRead(t, "queue-array.txt")}, scene{out: "4|~|n9|~|PENDING|~|\n"})
	q, err := c.Queue(context.Background())
	list := q.Waiting
	if err != nil || len(list) != 1 || list[0].ID != 4 || list[0].Elements != 2 ||
		!slices.Equal(list[0].ExcNodes, []string{"n9"}) {
		t.Errorf("%+v %v", list, err)
	}
}

// TestExpedited reads a job that squeue shows as EXPEDITING. It must count as waiting, and the request for the
// excluded nodes must include this state, but only if there is such a job, because earlier releases refuse the
// state's name.
func TestExpedited(t *testing.T) {
	for state, arg := range map[string]string{"EXPEDITING": "PD,EXPEDITING", "PENDING": "PD"} {
		c, calls := stage(t, recordOf(map[string]string{"state": state, "nodelist": ""}), exclusionOf(state))
		q, err := c.Queue(context.Background())
		if err != nil || len(q.Waiting) != 1 {
			t.Fatalf("%s: %+v %v", state, q, err)
		}
		w := q.Waiting[0]
		if w.State != "PENDING" || w.Expedited != (state == "EXPEDITING") || w.Present() || w.Holds() ||
			!slices.Equal(w.ExcNodes, []string{"n8", "n9"}) {
			t.Errorf("%s: %+v", state, w)
		}
		if got := calls(); len(got) != 2 || !strings.Contains(got[1], `"-t" "`+arg+`"`) {
			t.Errorf("%s: calls %v", state, got)
		}
		c, _ = stage(t, recordOf(map[string]string{"state": state, "nodelist": ""}), exclusionOf(state))
		if j, err := c.Job(context.Background(), 7); err != nil || j.State != "PENDING" || len(j.ExcNodes) != 2 {
			t.Errorf("%s: %+v %v", state, j, err)
		}
	}
}

// TestLongOutput checks that a command whose output is too long is ended, and that its output is not kept in memory.
func TestLongOutput(t *testing.T) {
	_, _, err := command(t.Context(), nil, "/bin/sh", "-c", "exec cat /dev/zero")
	if err == nil || !strings.Contains(err.Error(), "longer than 128 MiB") {
		t.Errorf("%v", err)
	}
	c := New(Options{Run: func(_ context.Context, env []string, _ string, _ ...string) (string, string, error) {
		if !slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, ",dependency:16|") }) {
			t.Errorf("squeue prints whole dependencies: %q", env)
		}
		return "", "", nil
	}})
	if _, err := c.Jobs(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLongTexts checks that a listing keeps only the beginning of a long name, and only Caelum's tags of a long
// comment.
func TestLongTexts(t *testing.T) {
	line, _, _ := strings.Cut(mustRead(t, "queue-array.txt"), "\n")
	fields := strings.Split(line, recordedSep)
	for _, c := range []struct{ name, comment, wantName, wantComment string }{
		{"train", "caelum:movable my own", "train", "caelum:movable my own"},
		{strings.Repeat("j", 1000), strings.Repeat("c ", 400) + "caelum:movable caelum:checkpoint=9 x",
			strings.Repeat("j", maxText), "caelum:movable caelum:checkpoint=9"},
		{strings.Repeat("é", 400), strings.Repeat("c", 1000), strings.Repeat("é", maxText/2), ""},
	} {
		fields[nameColumn], fields[commentColumn] = c.name, c.comment
		jobs, err := parseJobs(strings.NewReader(strings.Join(fields, recordedSep)+"\n"), recordedSep)
		if err != nil || len(jobs) != 1 || jobs[0].Name != c.wantName || jobs[0].Comment != c.wantComment {
			t.Errorf("%.20q, %.20q: %+v, %v", c.name, c.comment, jobs, err)
		}
	}
}

// TestArrayMemory checks that reading an array takes little memory, however many tasks it has and however long its
// request is, and that a request that is too long is a problem of this job only.
func TestArrayMemory(t *testing.T) {
	for name, c := range map[string]struct{ tasks, nodes int }{
		"tasks": {100000, 0},
		"nodes": {2000, 64 << 10}, // 128 MiB of output
	} {
		t.Run(name, func(t *testing.T) {
			line, _, _ := strings.Cut(mustRead(t, "queue-array.txt"), "\n")
			fields := strings.Split(line, recordedSep)
			column := slices.IndexFunc(jobFields, func(f field) bool { return f.name == "reqnodes" })
			fields[column] = strings.Repeat("n", c.nodes)
			before := []byte(strings.Join(fields[:arrayTaskColumn], recordedSep) + recordedSep)
			after := []byte(recordedSep + strings.Join(fields[arrayTaskColumn+1:], recordedSep) + "\n")
			out, in := io.Pipe()
			go func() {
				for task := range c.tasks {
					in.Write(before)
					in.Write([]byte(strconv.Itoa(task)))
					in.Write(after)
				}
				in.Close()
			}()
			var first, last runtime.MemStats
			runtime.ReadMemStats(&first)
			jobs, err := parseJobs(out, recordedSep)
			runtime.ReadMemStats(&last)
			if err != nil || len(jobs) != 1 || jobs[0].ArrayTask != fmt.Sprintf("0-%d", c.tasks-1) {
				t.Fatalf("%d jobs, %v", len(jobs), err)
			}
			if got := jobs[0].Problem != ""; got != (c.nodes > maxUsersHosts) {
				t.Errorf("problem %q", jobs[0].Problem)
			}
			n := (last.TotalAlloc - first.TotalAlloc) >> 20
			t.Logf("reading took %d MiB", n)
			if n > 32 {
				t.Errorf("reading took %d MiB", n)
			}
		})
	}
}

// TestLimits checks the largest sets that are parsed.
func TestLimits(t *testing.T) {
	for n, ok := range map[int]bool{maxHetJobs: true, maxHetJobs + 1: false} {
		if ids, err := idSet(fmt.Sprintf("1-%d", n)); (err == nil) != ok || ok && len(ids) != n {
			t.Errorf("%d ids: %d, %v", n, len(ids), err)
		}
	}
	for n, ok := range map[int]bool{maxHosts: true, maxHosts + 1: false} {
		for _, list := range []string{fmt.Sprintf("n[1-%d]", n), fmt.Sprintf("n[1-%d],m", n-1)} {
			if hosts, err := usersHosts(list); (err == nil) != ok || ok && len(hosts) != n {
				t.Errorf("%s: %d hosts, %v", list, len(hosts), err)
			}
		}
	}
}

// TestManyNames checks that the hostlists of one user's jobs have a limited number of names, and that other users' jobs
// do not count.
func TestManyNames(t *testing.T) {
	line, _, _ := strings.Cut(mustRead(t, "queue-array.txt"), "\n")
	column := func(name string) int {
		return slices.IndexFunc(jobFields, func(f field) bool { return f.name == name })
	}
	const most = maxHosts / 2
	var jobs, exclusions strings.Builder
	owners := map[uint32]uint32{}
	for id := range uint32(12) {
		fields := strings.Split(line, recordedSep)
		owners[100+id] = 1000 + id/10
		hosts := fmt.Sprintf("n[1-%d],n[1-%d]", most, most)
		for name, value := range map[string]string{
			"jobid": fmt.Sprint(100 + id), "userid": fmt.Sprint(owners[100+id]), "reqnodes": hosts, "state": "PENDING",
		} {
			fields[column(name)] = value
		}
		jobs.WriteString(strings.Join(fields, recordedSep) + "\n")
		exclusions.WriteString(strings.Join([]string{fields[0], hosts, "PENDING", "\n"}, recordedSep))
	}
	parsed, err := parseJobs(strings.NewReader(jobs.String()), recordedSep)
	excluded, wrong := parseExclusions(strings.NewReader(exclusions.String()), recordedSep, owners)
	if err != nil || wrong != nil || len(parsed) != 12 || len(excluded) != 12 {
		t.Fatalf("%d jobs, %d exclusions, %v, %v", len(parsed), len(excluded), err, wrong)
	}
	for k, j := range parsed {
		want := most
		if k >= maxUsersNames/most && k < 10 {
			want = 0
		}
		if len(j.ReqNodes) != want || (j.Problem == "") != (want > 0) {
			t.Errorf("job %d requests %d names, want %d; problem %q", j.ID, len(j.ReqNodes), want, j.Problem)
		}
		if e := excluded[j.ID]; len(e.excluded) != want || (e.problem == "") != (want > 0) {
			t.Errorf("job %d excludes %d names, want %d; problem %q", e.id, len(e.excluded), want, e.problem)
		}
	}
}

// TestLongListsAreNotKept checks that a job's record does not keep the text of its hostlist.
func TestLongListsAreNotKept(t *testing.T) {
	line, _, _ := strings.Cut(mustRead(t, "queue-array.txt"), "\n")
	column := slices.IndexFunc(jobFields, func(f field) bool { return f.name == "reqnodes" })
	var out strings.Builder
	const count = 200
	for id := range count {
		fields := strings.Split(line, recordedSep)
		fields[0], fields[column] = fmt.Sprint(id+1), "n1"+strings.Repeat(",n1", maxUsersHosts/3-1)
		out.WriteString(strings.Join(fields, recordedSep) + "\n")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	jobs, err := parseJobs(strings.NewReader(out.String()), recordedSep)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil || len(jobs) != count || len(jobs[0].ReqNodes) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	if n := (int(after.HeapAlloc) - int(before.HeapAlloc)) / count; n > 8<<10 {
		t.Errorf("a job takes %d bytes", n)
	}
	runtime.KeepAlive(jobs)
	runtime.KeepAlive(&out)
}

// TestMemoryOfAQueue checks that equal fields of jobs share their memory.
func TestMemoryOfAQueue(t *testing.T) {
	line, _, _ := strings.Cut(mustRead(t, "queue-array.txt"), "\n")
	var out strings.Builder
	const count = 1000
	for id := range count {
		fields := strings.Split(line, recordedSep)
		fields[0], fields[column("reason")] = fmt.Sprint(id+1), strings.Repeat("r", longField-1)
		out.WriteString(strings.Join(fields, recordedSep) + "\n")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	jobs, err := appendJobs(make([]Job, 0, count), strings.NewReader(out.String()), recordedSep)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil || len(jobs) != count {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	if n := (int(after.HeapAlloc) - int(before.HeapAlloc)) / count; n > int(unsafe.Sizeof(jobs[0]))+longField/2 {
		t.Errorf("a job takes %d bytes", n)
	}
	runtime.KeepAlive(jobs)
	runtime.KeepAlive(&out)
}

// TestStream checks what a listing returns if squeue fails, prints something else, or does not stop printing.
func TestStream(t *testing.T) {
	for script, want := range map[string]string{
		"printf 7; exit 1":                    "exit status 1",
		"printf '7|'":                         "truncated",
		"printf 'x'; exec sleep 60":           "no answer in time",
		"exec cat /dev/zero":                  "too long",
		"echo slurm_load_jobs >&2; exit 1":    "slurm_load_jobs",
		"yes x | head -c 500000; kill -9 $$":  "killed",
		"yes '$SQUEUE_FORMAT2' | head -n 100": "truncated",
	} {
		squeue := filepath.Join(t.TempDir(), "squeue")
		if err := os.WriteFile(squeue, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := New(Options{Squeue: squeue, Timeout: 2 * time.Second}).Jobs(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", script, err, want)
		}
	}
}

// TestConvertMarks checks which waiting jobs get a mark, and which numbers it contains.
func TestConvertMarks(t *testing.T) {
	gpu := func(n int) GRESList { return GRESList{{Name: "gpu", Count: n}} }
	waiting := []Waiting{
		{Job: &Job{ID: 1, NumNodes: 1, PerNode: gpu(1)}},
		{Job: &Job{ID: 2, NumNodes: 1, PerJob: gpu(2), ExcNodes: []string{"n1"}, Sockets: 2, Exclusive: true}},
		{Job: &Job{ID: 3, NumNodes: 1, Batch: true}},
		{Job: &Job{ID: 4, NumNodes: 1, Batch: true}},
		{Job: &Job{ID: 5, NumNodes: 1, PerNode: append(gpu(1), GRES{Name: "mig", Type: "1g.5gb", Count: 1})}},
		{Job: &Job{ID: 6, NumNodes: 1, PerNode: gpu(1)}},
		{Job: &Job{ID: 7, NumNodes: 1}}, // not a batch job
		{Job: &Job{ID: 8, NumNodes: 1, PerNode: GRESList{{Name: "shard", Count: 2}}}},
	}
	imitation := "JobId=4 JobName=x\n   NtasksPerTRES=1\n   StdOut=x\n   NtasksPerTRES=1\n   StdOut=/tmp/x\n"
	c, calls := stage(t, scene{out: "1 1 N/A 1 \n" +
		"2           8           4           2           \n3 4 N/A 1\n4 4 N/A 1\n5 1 N/A 1\nx\n7 4 N/A 1\n8 1 N/A 1\n"},
		scene{out: "JobId=3 JobName=x\n   StdOut=/tmp/x\n   NtasksPerTRES=2 \n"}, scene{out: imitation},
		scene{out: "   NtasksPerTRES=1\n"})
	got, err := c.ConvertMarks(t.Context(), waiting)
	want := map[uint32]string{
		1: "caelum:convert",
		2: "caelum:convert num_tasks=8 ntasks_per_node=4 cpus_per_task=2 sockets_per_node=2 named=1 shared=0",
		3: "caelum:convert num_tasks=4 ntasks_per_tres=2",
		4: "", 7: "", 8: "",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v: %v after %v", got, err, calls())
	}
}

// TestRemoveSlices checks the request with which the slices of a job are removed.
func TestRemoveSlices(t *testing.T) {
	for _, tc := range []struct {
		record map[string]string
		exc    []string
		shared string
		want   string
	}{
		{map[string]string{"tres-per-node": "gres:gpu:2,gres:mig:1g.5gb:2", "tres-per-job": "gres:gpu:4",
			"numtasks": "4", "numnodes": "2", "cpus-per-tres": "gres:gpu:2,gres:mig:2"},
			[]string{"n1", "mig-catalog1"}, "memory",
			`["update" "jobid=7" "admincomment=a b" "excnodelist=n1" ` +
				`"cpuspertres=gres:gpu:2" "mempertres=" "numtasks=4" "gres=gpu:2" "numnodes=2-2" "numcpus=4"]`},
		{map[string]string{"tres-per-node": "gres:mig:1g.5gb:1", "tres-per-task": "gres:gpu:1",
			"cpus-per-tres": "gres:gpu:2,gres:mig:2"}, nil, "cpus",
			`["update" "jobid=7" "admincomment=a b" "cpuspertres=" "numtasks=4" "trespernode="]`},
		{nil, []string{"mig-catalog1", "mig-catalog2"}, "",
			`["update" "jobid=7" "admincomment=a b" "excnodelist=" "numtasks=4"]`},
	} {
		c, calls := stage(t, recordOf(tc.record), scene{})
		w := Waiting{Job: &Job{ID: 7, ExcNodes: tc.exc, NumNodes: 2, Tasks: 4}}
		err := c.RemoveSlices(t.Context(), w, tc.shared, "a b")
		if got := calls(); err != nil || got[1] != tc.want {
			t.Errorf("%v after %v, want %s", err, got, tc.want)
		}
	}
}

// TestNodesJobs checks the requests for all jobs on a node, for a script and for the processes of jobs.
func TestNodesJobs(t *testing.T) {
	done := recordOf(map[string]string{"state": "COMPLETED"})
	done.out += recordOf(map[string]string{"jobid": "8", "state": "COMPLETED", "nodelist": "n2"}).out
	c, calls := stage(t, done,
		scene{out: "#!/bin/sh\ntrain"},
		scene{}, // scontrol exits with 0 even if slurmctld refuses
		scene{out: "PID      JOBID    STEPID   LOCALID GLOBALID\n417      3        0        0       0      \n" +
			"-1       4        0        1       1      \n401      5        batch    -       -      \n"})
	jobs, err := c.AllOn(t.Context(), "n3")
	if err != nil || len(jobs) != 1 || jobs[0].ID != 7 || jobs[0].State != "COMPLETED" {
		t.Errorf("%+v, %v", jobs, err)
	}
	if script, err := c.Script(t.Context(), 7); script != "#!/bin/sh\ntrain" || err != nil {
		t.Errorf("script %q, %v", script, err)
	}
	if _, err := c.Script(t.Context(), 8); !errors.Is(err, ErrNoJob) {
		t.Errorf("an empty script: %v", err)
	}
	found, err := c.Processes(t.Context(), "n3")
	if len(found) != 2 || found[417] != 3 || found[401] != 5 || err != nil {
		t.Errorf("processes %v, %v", found, err)
	}
	want := []string{`["-h" "-r" "-a" "--local" "-t" "all" "-w" "n3"]`, `["write" "batch_script" "7" "-"]`,
		`["write" "batch_script" "8" "-"]`, `["listpids" "*" "n3"]`}
	if got := calls(); !slices.Equal(got, want) {
		t.Errorf("calls %v", got)
	}
	for _, name := range []string{"", "-w", "n1,n2"} {
		_, err1 := c.AllOn(t.Context(), name)
		_, err2 := c.Processes(t.Context(), name)
		if !errors.Is(err1, ErrNoNode) || !errors.Is(err2, ErrNoNode) {
			t.Errorf("%q: %v, %v", name, err1, err2)
		}
	}
}
