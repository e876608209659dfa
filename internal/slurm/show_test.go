package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// writeProgram writes a shell script and returns its path.
func writeProgram(t *testing.T, path, script string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// versionError is a script that fails like the dynamic linker if a library lacks a version.
const versionError = `echo "./show: libslurm.so: version 'V2' not found (required by ./show)" >&2; exit 1`

// TestShow checks that Node and NamedNodes run caelum-show, and that they run scontrol if caelum-show
// does not exist, cannot be executed or does not find Slurm's library, but not if it reports an error from slurmctld.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	program := func(name, script string, mode os.FileMode) string {
		return writeProgram(t, filepath.Join(dir, name), script, mode)
	}
	const prints = `for n in $(echo "$NODES" | tr , " "); do
printf 'NodeName=%s CoresPerSocket=1\n   State=IDLE Weight=1\n   Gres=(null)\n   Comment=%s\n\n' $n "$0"
done`
	scontrol := program("scontrol", "NODES=$4\n"+prints, 0o755)
	works := program("works", "[ $1 = node ] || exit 2; shift; NODES=\"$*\"\n"+prints, 0o755)
	for _, k := range []struct{ name, path, comment string }{
		{"works", works, works},
		{"missing", filepath.Join(dir, "none"), scontrol},
		{"not executable", program("mode", "", 0o644), scontrol},
		{"another library", program("ld", "exit 127", 0o755), scontrol},
		{"another version of the library", program("version", versionError, 0o755), scontrol},
		{"a crash", program("crash", "kill -SEGV $$", 0o755), scontrol},
	} {
		c := New(Options{Scontrol: scontrol, Show: k.path})
		if err := c.CheckShow(context.Background()); (err != nil) != (k.comment == scontrol) {
			t.Errorf("%s: CheckShow returned %v", k.name, err)
		}
		n, err := c.Node(context.Background(), "n1")
		if err != nil || n.Name != "n1" || n.Comment != k.comment || n.Asked.IsZero() {
			t.Errorf("%s: %+v, %v", k.name, n, err)
		}
		all, err := c.NamedNodes(context.Background(), "n2", "n1")
		if err != nil || len(all) != 2 || all[0].Name != "n2" || all[1].Comment != k.comment || all[1].Asked.IsZero() {
			t.Errorf("%s: %+v, %v", k.name, all, err)
		}
	}
	for script, want := range map[string]error{
		"echo Node n1 not found; exit 1":                                               ErrNoNode,
		"echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1": ErrUnreachable,
	} {
		c := New(Options{Scontrol: scontrol, Show: program("fails", script, 0o755)})
		if _, err := c.Node(context.Background(), "n1"); !errors.Is(err, want) {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// TestShowJob checks that Job takes a job's allocation from caelum-show if possible, and from scontrol otherwise.
func TestShowJob(t *testing.T) {
	const run = "StartTime=1795233592 Restarts=0\n"
	for _, k := range []struct {
		name, script string
		want         string // the GRES on n3
		err          error
		scontrol     bool // whether the next command is scontrol
	}{
		{"a job with slices", "echo '" + run + "Node=n3 GRES=gpu:a100:1(IDX:4),mig:1g.5gb:1(CNT:1)'",
			"gpu:a100:1,mig:1g.5gb:1", nil, false},
		{"a job without GRES", "echo '" + run + "Node=n3 GRES='", "", nil, false},
		{"the library is missing", "exit 127", "gpu:a100:1,mig:2g.10gb:1", nil, true},
		{"the nodes are unclear", "exit 2", "gpu:a100:1,mig:2g.10gb:1", nil, true},
		{"slurmctld is down", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "",
			ErrUnreachable, false},
	} {
		c, calls := stage(t, recordOf(nil), scene{out: mustRead(t, "job-arraytask.txt")})
		c.show = writeProgram(t, filepath.Join(t.TempDir(), "show"), k.script, 0o755)
		j, err := c.Job(context.Background(), 7)
		if !errors.Is(err, k.err) || j.Allocated["n3"].String() != k.want || (len(calls()) == 2) != k.scontrol {
			t.Errorf("%s: %+v, %v, %v", k.name, j.Allocated, err, calls())
		}
	}
	for _, script := range []string{ // the job has started again, has been requeued, or has ended
		"echo 'StartTime=1795239999 Restarts=0\nNode=n3 GRES='",
		"echo 'StartTime=1795233592 Restarts=1\nNode=n3 GRES='",
		"echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "echo Job 7 not found; exit 1",
	} {
		pending := recordOf(map[string]string{"state": "PENDING", "nodelist": ""})
		c, _ := stage(t, recordOf(nil), pending, exclusionOf("PENDING"))
		c.show = writeProgram(t, filepath.Join(t.TempDir(), "show"), script, 0o755)
		j, err := c.Job(context.Background(), 7)
		if err != nil || j.State != "PENDING" || j.Allocated != nil || !slices.Equal(j.ExcNodes, []string{"n8", "n9"}) {
			t.Errorf("%q: %+v, %v", script, j, err)
		}
	}
	for _, text := range []string{"", "x", run + "x", run, run + "Node=n4 GRES=", run + "Node=n3 GRES=mig:x:y"} {
		c, _ := stage(t, recordOf(nil))
		c.show = writeProgram(t, filepath.Join(t.TempDir(), "show"), "echo '"+text+"'", 0o755)
		if j, err := c.Job(context.Background(), 7); err == nil {
			t.Errorf("%q is accepted: %+v", text, j.Allocated)
		}
	}
}
