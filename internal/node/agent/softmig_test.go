package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// newSoftMig is like newFractional, but SoftMig limits the memory. The driver cannot.
func newSoftMig(t *testing.T, gpus int) fractional {
	t.Helper()
	f := newFractional(t, gpus)
	f.stop()
	dir := t.TempDir()
	f.driver, f.limits, f.cfg.FractionLimits = nil, nil, config.LimitsSoftMig
	f.softMig = gpu.SoftMig{Dir: filepath.Join(dir, "softmig"), Preload: filepath.Join(dir, "libsoftmig.so")}
	if err := os.WriteFile(f.softMig.Preload, []byte(f.softMig.Preload), 0o644); err != nil { // names itself
		t.Fatal(err)
	}
	f.start()
	return f
}

// limitFiles checks the content of all files in SoftMig's directory, by name.
func (f fractional) limitFiles(want map[string]string) {
	f.t.Helper()
	got := map[string]string{}
	entries, _ := os.ReadDir(f.softMig.Dir)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(f.softMig.Dir, e.Name()))
		got[e.Name()], _, _ = strings.Cut(string(text), "\n")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("%v, want %v", got, want)
	}
}

// TestSoftMig checks that a job with a fraction has its limit in a file while it runs, also after a restart of the
// agent, which removes the files of jobs that have ended.
func TestSoftMig(t *testing.T) {
	const small, large = "CUDA_DEVICE_MEMORY_LIMIT=11389M", "CUDA_DEVICE_MEMORY_LIMIT=22778M"
	f := newSoftMig(t, 1)
	first := f.lease(f.startNow("1f.11gb:1"))
	second := f.lease(f.startNow("2f.22gb:1"))
	if len(first.Slices) != 1 || len(second.Slices) != 1 || first.Cgroup.Inode == 0 {
		t.Fatalf("%+v\n%+v", first, second)
	}
	own := map[string]string{fmt.Sprintf("%d.conf", first.Job): small, fmt.Sprintf("%d.conf", second.Job): large}
	f.limitFiles(own)
	f.stop()
	orphan := "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_9999"
	if err := f.softMig.SetLimit(0, orphan, 1<<30); err != nil {
		t.Fatal(err)
	}
	site := filepath.Join(f.softMig.Dir, "9998.conf")
	if err := os.WriteFile(site, []byte(small+"\nCUDA_DEVICE_SM_LIMIT=25\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.softMig.SetLimit(0, first.Cgroup.Path, gpu.NoLimit); err != nil {
		t.Fatal(err)
	}
	f.start()
	own["9998.conf"] = small
	f.limitFiles(own)
	if n := strings.Count(f.log.String(), "fraction_limits is softmig"); n != 2 {
		t.Errorf("the log has %d warnings:\n%s", n, &f.log)
	}
	f.finish(first.Job)
	f.finish(second.Job)
	f.limitFiles(map[string]string{"9998.conf": small})
	if full := f.lease(f.startNow("full:1")); len(full.Slices) != 1 {
		t.Errorf("%+v", full)
	}
	f.limitFiles(map[string]string{"9998.conf": small})
	if made, _ := f.groups.Made(); len(made) != 1 {
		t.Errorf("%v", made)
	}
}

// TestSoftMigUnlimited checks that the samples write a removed file again, and end a job whose program evades SoftMig.
func TestSoftMigUnlimited(t *testing.T) {
	f := newSoftMig(t, 1)
	h := heldIn(t, f.world)
	var jobs [2]uint32
	var ended [2]chan error
	for k, memory := range []string{"11000", "12000"} {
		l := f.lease(f.startNow("1f.11gb:1"))
		jobs[k] = l.Job
		_, ended[k] = h.computes(f.agent.node.Cards[0].UUID, 20001, f.cgroup(l)+"/step_0/user/task_0",
			"--memory", memory)
	}
	path := filepath.Join(f.softMig.Dir, fmt.Sprintf("%d.conf", jobs[0]))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range unlimitedSamples {
		f.agent.usage.Sampler(0).Sample()
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if len(f.agent.ends) != 1 {
		t.Fatalf("%d jobs are to be ended", len(f.agent.ends))
	}
	f.agent.endJob(t.Context(), <-f.agent.ends)
	if err := <-ended[1]; err == nil {
		t.Error("the process of the second job was not killed")
	}
	const want = "used 12000 MiB, its fraction 1f.11gb has 11389 MiB, and its programs evaded the limit"
	if calls := fmt.Sprint(f.fake.Calls()); !strings.Contains(calls, want) || len(ended[0]) > 0 {
		t.Errorf("calls: %s", calls)
	}
}

// TestSoftMigUnfit checks that jobs whose memory SoftMig cannot limit do not start.
func TestSoftMigUnfit(t *testing.T) {
	for _, c := range []struct{ name, slices, want string }{
		{"het job", "1f.11gb:1", "SoftMig cannot limit the memory of het jobs"},
		{"two GPUs", "1f.11gb:2", "SoftMig has one memory limit for all GPUs of a job"},
		{"full het job", "full:1", ""},
		{"full GPUs", "full:2", ""},
	} {
		f := newSoftMig(t, 2)
		j := job(int(c.slices[len(c.slices)-1]-'0'), c.slices)
		if strings.HasSuffix(c.name, "het job") {
			j.HetJob = 1
		}
		l := f.startJob(j)
		if (len(l.Slices) > 0) != (c.want == "") || !strings.Contains(l.Error, c.want) {
			t.Errorf("%s: %+v", c.name, l)
		}
		f.limitFiles(map[string]string{})
	}
}

// TestSoftMigDoesNotGrow checks that a fraction does not grow in place, because running processes keep the limit that
// they have read.
func TestSoftMigDoesNotGrow(t *testing.T) {
	f := newSoftMig(t, 1)
	l := f.lease(f.startNow("1f.11gb:1"))
	if f.agent.growInPlace(context.Background(), l, predict.Need{PeakMiB: 15000, HighestMiB: 15000}) {
		t.Error("the fraction has grown")
	}
	f.limitFiles(map[string]string{fmt.Sprintf("%d.conf", l.Job): "CUDA_DEVICE_MEMORY_LIMIT=11389M"})
}

// startJob is like startNow and lease for any job.
func (f fractional) startJob(j slurm.Job) api.Lease {
	f.t.Helper()
	id := f.submit(j)
	f.publish()
	f.fake.Tick()
	return f.lease(id)
}

// TestSoftMigWithoutLibrary checks that GPUs have no fractions unless programs load SoftMig's library.
func TestSoftMigWithoutLibrary(t *testing.T) {
	f := newSoftMig(t, 1)
	f.stop()
	f.softMig.Preload += ".missing"
	f.start()
	if why := f.agent.node.Cards[0].Undivided; !strings.Contains(why, "does not name SoftMig's library") {
		t.Errorf("no fractions: %q", why)
	}
}
