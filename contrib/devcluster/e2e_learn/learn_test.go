//go:build e2e

package e2elearn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestMain records runs in place of the nodes' agents if the arguments are "inside DIRECTORY ID...". The test binary
// then runs inside the cluster, because Slurm's commands work only there.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "inside" {
		if err := record(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const names = "tr\nain'\"; |x"

// record writes the measurements of the jobs' runs to the jobs' records, as agents do, and to a separate repository,
// nodes.db in folder.
func record(folder string, ids []string) error {
	r, err := repo.Open(filepath.Join(folder, "nodes.db"), func(text string) { fmt.Fprintln(os.Stderr, text) })
	if err != nil {
		return err
	}
	defer r.Close()
	dbd := slurm.New(slurm.Options{})
	for _, text := range ids {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return err
		}
		if err := recordJob(r, dbd, uint32(id)); err != nil {
			return fmt.Errorf("job %d: %w", id, err)
		}
	}
	return nil
}

func recordJob(r *repo.Repo, dbd *slurm.Client, id uint32) error {
	ctx := context.Background()
	records, err := dbd.RecordsOf(ctx, slurm.AdminComment, id)
	if err != nil {
		return err
	}
	newest := records[len(records)-1]
	text := newest.Text
	for restart, rec := range records {
		for _, node := range rec.Nodes {
			n := predict.Run{
				Job: id, Restart: restart, Node: node, Key: tags.Value(rec.Comment, tags.Key),
				Fingerprint: tags.Value(rec.Comment, tags.Fingerprint),
				UID:         rec.UID, User: rec.User, Account: rec.Account, Name: names, GPUType: "a100",
				Profile: "7g.40gb", Slices: 1, Start: rec.Start.Unix() + 1, Seconds: 60,
				Samples: 60, PeakMiB: 5000, MedianMiB: 4000, HighMiB: 4900, Util: -1, State: rec.State, Exit: rec.Exit,
			}
			if _, err := r.Add(n); err != nil {
				return err
			}
			text = predict.WithSummary(text, n)
		}
	}
	if err := dbd.SetAccounting(ctx, newest, slurm.AdminComment, text); err != nil {
		return err
	}
	if err := beside(ctx, dbd, newest, text); err != nil {
		return err
	}
	again, err := dbd.RecordsOf(ctx, slurm.AdminComment, id)
	if err != nil {
		return err
	}
	if got := again[len(again)-1].Text; !strings.EqualFold(got, text) {
		return fmt.Errorf("the comment is %q, want %q", got, text)
	}
	if len(again) != len(records) || len(again) > 1 && len(predict.Summaries(again[0].Text)) != 0 {
		return errors.New("the accounting client changed the record of an earlier run")
	}
	return nil
}

// beside writes text into a record that already contains another tool's text with capital letters. Up to Slurm 22.05,
// sacctmgr would change them to lower case, so the record must remain unchanged.
func beside(ctx context.Context, dbd *slurm.Client, rec slurm.Record, text string) error {
	out, err := exec.CommandContext(ctx, "sacctmgr", "-V").Output()
	if err != nil {
		return err
	}
	release, err := slurm.ParseRelease(string(out))
	if err != nil {
		return err
	}
	err = dbd.SetAccounting(ctx, rec, slurm.SystemComment, "JS1:H4sI "+text)
	if release.KeepsCase() != (err == nil) || err != nil && !errors.Is(err, slurm.ErrSpoils) {
		return fmt.Errorf("SetAccounting with another tool's text on %s returned %w", release, err)
	}
	return nil
}

// site is a cluster under test.
type site struct {
	*testing.T
	*cluster.Cluster
}

func (s site) must(user string, args ...string) string {
	s.Helper()
	out, stderr, err := s.Exec(s.Context(), user, args...)
	if err != nil {
		s.Fatalf("%q: %v\n%s", args, err, stderr)
	}
	return out
}

// submit submits a job and returns its id.
func (s site) submit(args ...string) string {
	s.Helper()
	out := s.must("user1", append([]string{"sbatch", "--parsable", "--job-name=" + names}, args...)...)
	return strings.TrimSpace(out)
}

// until waits until a command prints the wanted text.
func (s site) until(want string, args ...string) {
	s.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, _, err := s.Exec(s.Context(), "root", args...)
		if err == nil && strings.TrimSpace(out) == want {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%q prints %q, not %q", args, out, want)
		}
	}
}

// start starts a cluster whose agents have the given configuration, and stops it at the end of the test.
func start(t *testing.T, config string, o cluster.Options) site {
	t.Helper()
	o.AgentConfig = filepath.Join(t.TempDir(), "caelum.yaml")
	if err := os.WriteFile(o.AgentConfig, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	o.Conf = append(o.Conf,
		"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min,bf_interval=1")
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop() })
	return site{t, c}
}

// write creates an executable file in a user's home directory, and returns its path.
func (s site) write(user, name, text string) string {
	s.Helper()
	path := filepath.Join(s.Dir, "home", user, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		s.Fatal(err)
	}
	return path
}

// TestLearned checks that a host that reads the runs from slurmdbd makes the same predictions as hosts that record the
// runs themselves. It also checks that users' predictions are based only on their own runs.
func TestLearned(t *testing.T) {
	s := start(t, "accounting_field: none\npoll_interval: 1s\n",
		cluster.Options{Conf: []string{"AuthInfo=cred_expire=5"}})
	ended, running := s.firstRuns()
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	s.record(folder, ended, running)

	// The sync uses an accounting field, but the agents of the cluster have accounting_field: none.
	off := filepath.Join(folder, "learn.yaml")
	if err := os.WriteFile(off, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// The 16 runs are ten array tasks, two runs of a requeued job, a run on two nodes, and two components.
	var synced struct{ Runs, New int }
	if err := json.Unmarshal([]byte(s.must("root", "caelum", "repo", "sync", "--config", off, "--json")),
		&synced); err != nil ||
		synced.New != 16 {
		t.Fatalf("caelum repo sync returned %+v, want 16 new runs: %v", synced, err)
	}
	if s.must("root", "caelum", "repo", "sync", "--config", off, "--json") == "" {
		t.Error("the second caelum repo sync printed nothing")
	}
	nodes := s.must("root", "caelum", "repo", "export", "--repo", filepath.Join(folder, "nodes.db"))
	if host := s.must("root", "caelum", "repo", "export", "--config", off); host != nodes {
		t.Errorf("the nodes recorded\n%sbut the host read from slurmdbd\n%s", nodes, host)
	}

	// The next job with the job key of the array must get the learned profile.
	s.must("root", "scancel", running)
	s.must("root", "caelum", "repo", "decisions", "--config", off)
	next := s.submit("--gres=gpu:1", "--wrap=sleep 1")
	s.until("", "squeue", "-h")
	if tres := s.must("root", "sacct", "-X", "-n", "-P", "-j", next, "-o", "AllocTRES"); !strings.Contains(
		tres,
		"gres/mig:1g.10gb=1",
	) {
		t.Errorf("the job with the key of the array got %s", tres)
	}
	if text := s.must("root", "caelum", "predict", next, "--config", off); !strings.Contains(
		text,
		"profile 1g.10gb of A100-40GB",
	) {
		t.Error(text)
	}
	s.limits(off)
	s.usersLearn(next)
}

// limits checks the profiles of jobs with time limits. The recorded runs took 60 s on the whole GPU. This means
// 191 s on 1g.10gb, 115 s on 2g.10gb, 89 s on 3g.20gb and, rounded up, 61 s on 7g.40gb, because the busy share is
// unknown. The 90% quantile is about a tenth longer.
func (s site) limits(config string) {
	s.Helper()
	for _, c := range []struct{ what, limit, option, request, requests string }{
		{"a sufficient limit", "4", "--mig=auto", "1g.10gb", ""},
		{"a limit that 1g.10gb misses", "3", "--mig=auto", "2g.10gb", "2g.10gb"},
		{"a shorter one", "2", "--mig=auto", "3g.20gb", "3g.20gb"},
		{"a limit that is too short even for the whole GPU", "1", "--mig=auto", "1g.10gb", ""},
		{"no limit", "0", "--mig=auto", "1g.10gb", ""},
		{"a named profile", "3", "--mig=1g.5gb", "1g.5gb", "2g.10gb"},
	} {
		job := s.submit("--gres=gpu:1", "--hold", "--time="+c.limit, c.option, "--wrap=sleep 1")
		record := s.must("root", "scontrol", "show", "job", job)
		raised := c.option == "--mig=auto" && c.requests != ""
		if !strings.Contains(record, "mig:"+c.request+":1") ||
			strings.Contains(record, tags.InsteadOf+"1g.10gb") != raised {
			s.Errorf("%s:\n%s", c.what, record)
		}
		predicted := s.must("root", "caelum", "predict", job, "--config", config)
		if !strings.Contains(predicted, "profile 1g.10gb of") ||
			strings.Contains(predicted, "named its profile") != (c.option != "--mig=auto") ||
			strings.Contains(predicted, "because of the time limit") != (c.requests != "") ||
			c.requests != "" && !strings.Contains(predicted, "requests the larger profile "+c.requests+" ") {
			s.Errorf("%s:\n%s", c.what, predicted)
		}
		explained := s.must("root", "caelum", "explain", job)
		if strings.Contains(explained, "because of the time limit") != raised {
			s.Errorf("%s:\n%s", c.what, explained)
		}
		s.must("root", "scancel", job)
	}
}

// firstRuns runs an array, a requeued job, a job on two nodes and a het job. It returns the ids of the ended jobs and
// the id of a running job.
func (s site) firstRuns() (ended []string, running string) {
	s.Helper()
	array := s.submit("--gres=gpu:1", "--array=0-9", "--wrap=sleep 1")
	requeued := s.submit("--gres=gpu:1", "--requeue", "--wrap=sleep 3; exit $SLURM_RESTART_COUNT")
	s.until("RUNNING", "squeue", "-h", "-j", requeued, "-o", "%T")
	s.must("root", "scontrol", "requeue", requeued)
	wide := s.submit("--gres=gpu:1", "-N2", "--wrap=sleep 1")
	het := s.submit("--gres=gpu:1", ":", "--gres=gpu:1", "--wrap=sleep 1")
	s.until("", "squeue", "-h")
	running = s.submit("--gres=gpu:1", "--wrap=sleep 600")
	s.until("RUNNING", "squeue", "-h", "-j", running, "-o", "%T")

	ended = strings.Fields(
		s.must("root", "sacct", "-a", "-X", "-n", "-S", "now-1hour", "-E", "now", "-s", "CD,F", "-o", "JobIDRaw"),
	)
	if len(ended) != 14 || !slices.Contains(ended, array) || !slices.Contains(ended, wide) ||
		!slices.Contains(ended, het) {
		s.Fatalf("sacct shows the ended jobs %v, want 14 jobs", ended)
	}
	return ended, running
}

// record runs the test binary in the cluster to record the ended jobs. The binary must return an error for a running
// job.
func (s site) record(folder string, ended []string, running string) {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	s.must("root", append([]string{self, "inside", folder}, ended...)...)
	if _, stderr, err := s.Exec(s.Context(), "root", self, "inside", s.TempDir(), running); err == nil ||
		!strings.Contains(stderr, slurm.ErrJobState.Error()) {
		s.Errorf("the test binary wrote the record of a running job: %v %s", err, stderr)
	}
}

// usersLearn checks the predictions and decision tables that users get from the runs of user1. job is the id of one of
// user1's jobs.
func (s site) usersLearn(job string) {
	s.Helper()
	as := func(user string, args ...string) string {
		own := filepath.Join(s.Dir, "home", user, "learn.yaml")
		if err := os.WriteFile(own, nil, 0o644); err != nil {
			s.Fatal(err)
		}
		return s.must(user, append(append([]string{"caelum"}, args...), "--config", own)...)
	}
	if text := as("user1", "predict", job); !strings.Contains(text, "profile 1g.10gb of A100-40GB") {
		s.Error(text)
	}
	if runs := as("user1", "repo", "export"); strings.Count(runs, "\n") != 16 {
		s.Errorf("user1's list of runs is wrong:\n%s", runs)
	}
	if text := as("user2", "repo", "export"); text != "" {
		s.Errorf("user2's list contains runs of user1:\n%s", text)
	}
	if _, stderr, err := s.Exec(s.Context(), "user2", "caelum", "predict", job, "--config",
		filepath.Join(s.Dir, "home", "user2", "learn.yaml")); err == nil ||
		!strings.Contains(stderr, "belongs to another user") {
		s.Errorf("caelum returned no error about user1's job to user2: %v %s", err, stderr)
	}
	// Like the watcher, users other than root must be able to write a table that they own, even if it belongs to
	// another group.
	home := filepath.Join(s.Dir, "home", "user1")
	table, own := filepath.Join(home, "decisions"), filepath.Join(home, "own.db")
	s.must("root", "sh", "-c", "sed '/^# The lines/,$d' /etc/caelum/decisions > "+table+" && chown user1:root "+table)
	as("user1", "repo", "sync", "--repo", own)
	as("user1", "repo", "decisions", "--repo", own, "--table", table)
	if text := s.must("user1", "cat", table); !strings.Contains(text, " 1g.10gb") {
		s.Errorf("user1's decision table is wrong:\n%s", text)
	}
}
