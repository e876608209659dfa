//go:build e2e

package e2elearn

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// The train script uses up to 6,000 MiB of GPU memory, and the other script uses up to 300 MiB.
const (
	train = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH --time=10\ncuda-process --curve 0:500,2:6000,3:6000\n"
	other = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH --time=10\ncuda-process --curve 0:300,3:300\n"
)

// on runs a command as root on a node. An empty node means the login node.
func (s site) on(node string, args ...string) string {
	s.Helper()
	out, stderr, err := s.ExecNode(s.Context(), node, "root", args...)
	if err != nil {
		s.Fatalf("%s: %q: %v\n%s", node, args, err, stderr)
	}
	return out
}

// run submits a script as a user under the given job name, waits until the job has ended, and returns its id and
// profile.
func (s site) run(user, name, script string) (id, profile string) {
	s.Helper()
	path := s.write(user, name, script)
	id = strings.TrimSpace(s.must(user, "sbatch", "--parsable", "-o", "/dev/null", path))
	s.until("", "squeue", "-h")
	s.until("COMPLETED", "sacct", "-X", "-n", "-P", "-j", id, "-o", "State")
	return id, s.profile(id)
}

// profile returns the profile of a job's slice according to sacct.
func (s site) profile(id string) (profile string) {
	s.Helper()
	for _, tres := range strings.Split(strings.TrimSpace(s.must("root", "sacct", "-X", "-n", "-P", "-j", id, "-o",
		"AllocTRES")), ",") {
		if typed, ok := strings.CutPrefix(tres, "gres/mig:"); ok {
			profile, _, _ = strings.Cut(typed, "=")
		}
	}
	return profile
}

// learned waits for the summary in a job's record, and updates the decision table from the summary.
func (s site) learned(id, config string) {
	s.Helper()
	s.until("1", "sh", "-c", "sacct -X -n -P -j "+id+" -o AdminComment | grep -c caelum:run=")
	s.on("", "caelum", "repo", "sync", "--config", config)
	s.on("", "caelum", "repo", "decisions", "--config", config)
}

// TestUnchangedScript checks that an unknown script gets the site's default profile in its first run, and afterwards
// the smallest sufficient slice. The runs must not produce a prediction for another script or for another user's jobs,
// unless the site shares the learned profiles between users, in which case other users' jobs with the same script must
// get a prediction. After one sync, every host must have the same data, including a host that has lost its repository.
func TestUnchangedScript(t *testing.T) {
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := start(t, "poll_interval: 1s\nsample_interval: 200ms\nlog_format: json\n", cluster.Options{Nodes: 2, GPUs: 1})
	own, shared := write("own.yaml", ""), write("shared.yaml", "share: true\nshare_users: 1\n")

	first, profile := s.run("user1", "train", train)
	if profile != "7g.40gb" {
		t.Errorf("the first run got %s", profile)
	}
	s.learned(first, own)
	for _, c := range []struct{ what, user, name, script, want string }{
		{"the second run", "user1", "train", train, "1g.10gb"},
		{"the third", "user1", "train", train, "1g.10gb"},
		{"the same script under another name", "user1", "train-again", train, "1g.10gb"},
		{"another script of the user", "user1", "other", other, "7g.40gb"},
		{"another script under the same name", "user1", "train", other, "7g.40gb"},
		{"another user's identical script", "user2", "train", train, "7g.40gb"},
	} {
		if _, profile := s.run(c.user, c.name, c.script); profile != c.want {
			t.Errorf("%s got %s, want %s", c.what, profile, c.want)
		}
	}
	s.on("", "caelum", "repo", "decisions", "--config", shared)
	last, profile := s.run("user2", "train-anew", train)
	if profile != "1g.10gb" {
		t.Errorf("with share: true, another user's identical script got %s", profile)
	}
	s.learned(last, shared)

	// sacct must show the measurements.
	record := s.must("root", "sacct", "-X", "-n", "-P", "-j", first, "-o", "AdminComment")
	var peak float64
	if _, at, ok := strings.Cut(record, ",peak="); !ok || !strings.Contains(record, "7g.40gb,a100,") {
		t.Errorf("sacct has %q", record)
	} else if _, err := fmt.Sscanf(strings.ToLower(at), "%fm", &peak); err != nil || peak < 5900 || peak > 6100 {
		t.Errorf("the summary contains a peak of %v MiB: %q", peak, record)
	}

	s.on("", "cp", "/etc/caelum/decisions", filepath.Join(folder, "decisions"))
	s.predictAlike(first, write("tabled.yaml", "table: "+filepath.Join(folder, "decisions")+"\n"))
}

// TestWatcherLearns checks that a watcher without a port and a key writes the learned line of a script into the table,
// so that the second run of the unchanged script gets a slice of the size that the first one needed.
func TestWatcherLearns(t *testing.T) {
	s := start(t, "learn: true\npoll_interval: 1s\nsample_interval: 200ms\nlog_format: json\n",
		cluster.Options{Nodes: 1, GPUs: 1})
	if _, profile := s.run("user1", "train", train); profile != "7g.40gb" {
		t.Errorf("the first run got %s", profile)
	}
	s.until("1", "grep", "-c", "^user .* 1g.10gb", "/etc/caelum/decisions")
	second, profile := s.run("user1", "train", train)
	if profile != "1g.10gb" {
		t.Errorf("the second run got %s", profile)
	}
	if out := s.on("", "caelum", "doctor", "--controller"); !strings.Contains(out, "ok       learning: ") {
		t.Errorf("caelum doctor --controller:\n%s", out)
	}
	for _, command := range []string{"predict", "report"} {
		if out := s.on("", "caelum", command, second); !strings.Contains(out, "\nlearning is on, with ") {
			t.Errorf("caelum %s:\n%s", command, out)
		}
	}
}

var sourceRuns = regexp.MustCompile(`"source_runs": [0-9]+,`)

// predictAlike checks that every host, including one that has lost its repository, makes the same prediction for a job
// with the given configuration's decision table.
func (s site) predictAlike(job, config string) {
	s.Helper()
	predicted := func(node string) string {
		s.Helper()
		text := s.on(node, "caelum", "predict", job, "--config", config, "--json")
		return sourceRuns.ReplaceAllString(text, "") // summaries of later runs may be missing on one host
	}
	want := predicted("")
	for _, node := range []string{"n1", "n2"} {
		s.on(node, "caelum", "repo", "sync")
		if got := predicted(node); got != want {
			s.Errorf("%s predicts\n%s, but the controller predicts\n%s", node, got, want)
		}
	}
	if err := s.StopUnit("agent-n1"); err != nil {
		s.Fatal(err)
	}
	s.on("n1", "sh", "-c", "rm /var/lib/caelum/repo.db*")
	s.on("n1", "caelum", "repo", "sync")
	if got := predicted("n1"); got != want {
		s.Errorf("after the loss of its repository, n1 predicts\n%s, but the controller predicts\n%s", got, want)
	}
	if err := s.StartUnit("agent-n1"); err != nil {
		s.Fatal(err)
	}
	var p struct {
		Profile string
		Runs    []json.RawMessage
	}
	if err := json.Unmarshal([]byte(predicted("n2")), &p); err != nil || p.Profile != "1g.10gb" || len(p.Runs) != 3 {
		s.Errorf("the prediction is %s from %d runs, %v", p.Profile, len(p.Runs), err)
	}
}
