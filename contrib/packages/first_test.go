//go:build e2e

package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/machine"
)

// oneHost gives the agent and the watcher different addresses, which is only necessary if both run on the same host
// (docs/configure/watcher.md, "Notifications").
const oneHost = `
echo "wake_address: 127.0.0.1" >>/etc/caelum/caelum.yaml
echo "wake_address: 192.0.2.1" >/etc/caelum/watch.yaml
mkdir /etc/systemd/system/caelum-watch.service.d
cat >/etc/systemd/system/caelum-watch.service.d/override.conf <<END
[Service]
ExecStart=
ExecStart=/usr/sbin/caelum-watch --config /etc/caelum/watch.yaml
END
systemctl daemon-reload
`

// train is a script whose need of GPU memory is in a file, so that it can change while the script does not.
const train = `#!/bin/bash
#SBATCH --gres=gpu:1
cuda-process --curve $(cat curve) --print
`

// promised is the time after the end of a script's first run in which Caelum has learned its size.
const promised = time.Minute

// TestFirstSlice shows what a new site gets: on a host with Debian's Slurm and emulated GPUs, the three commands of
// docs/install.md ("Start") lead to the first slice. The second submission of an unchanged script gets a slice of the
// size that it needs, and a job that runs out of GPU memory returns on a larger one. `caelum doctor` finds no fault.
func TestFirstSlice(t *testing.T) {
	eachSuite(t, func(t *testing.T, release, suite string) {
		dir := stockSite(t, release)
		m := machine.Boot(t, machine.Options{Command: []string{"./fresh", suite, dir, "/packages/stock"}})
		h := &host{Machine: m, t: t}
		h.Within("slurmdbd knows the cluster", func() bool {
			// On Debian 13, slurmdbd sometimes ends because libmariadb 11.8.9 rejects a result (error 5027).
			return h.Command("systemctl", "enable", "--now", "slurmdbd").Run() == nil &&
				h.Command("sacctmgr", "-i", "add", "cluster", "site").Run() == nil
		})
		h.Must("systemctl", "enable", "--now", "slurmctld", "slurmd")
		h.Within("the site has whole GPUs", func() bool {
			return h.Try("sinfo", "-h", "-n", "n1", "-o", "%T %G") == "idle gpu:a100:2\n"
		})
		h.Must("sh", "-c", "cd /packages && apt-get install -y ./*.deb")
		h.Must("sh", "-ec", oneHost)
		h.convert()
		h.learn()
		h.grow()
		h.healthy("doctor")
		h.healthy("doctor", "--controller")
	})
}

// stockSite returns a directory with the files that the stock script needs.
func stockSite(t *testing.T, release string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all, _ := names(t)
	for _, name := range append(all[:3], "caelum-spank-"+release) {
		output(t, "cp", file(t, built, name, ".deb"), dir)
	}
	programs := filepath.Dir(built)
	output(t, "cp", "-r", "stock", "../devcluster/machine", "../devcluster/lib", programs+"/nvml-emulator",
		programs+"/cuda-process", programs+"/libnvidia-ml.so.1", dir)
	output(t, "cc", "-O1", "-shared", "-fPIC", "-o", dir+"/unified.so", "../devcluster/lib/unified.c")
	return dir
}

// convert runs the three commands. The emulated nvidia-smi does not list devices, so cuda-process does this instead.
func (h *host) convert() {
	h.t.Helper()
	h.Must("sh", "-c", "caelum slurm-config --json > /root/a100.json")

	var out strings.Builder
	setup := h.Command("caelum", "setup", "--apply", "--nodes", "n1", "--partition", "gpu", "--inventory",
		"/root/a100.json")
	setup.Stdout, setup.Stderr = &out, &out
	if err := setup.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.Within("setup waits for slurmd", func() bool {
		return strings.Contains(h.Try("cat", "/etc/caelum/setup.json"), `"Step":"slurmd"`)
	})
	h.Must("sh", "-ec", "systemctl enable --now caelumd; systemctl restart slurmd") // setup has printed both
	if err := setup.Wait(); err != nil {
		h.t.Fatalf("caelum setup: %v\n%s", err, &out)
	}
	h.t.Log(&out)

	first := h.User("srun -p gpu --gres=gpu:1 cuda-process --seconds 0.1 --print")
	if !strings.Contains(first, "uuid=MIG-") {
		h.t.Errorf("the first job printed %s", first)
	}
}

// run submits the script, with the given memory use at times in seconds, and returns the job's id.
func (h *host) run(curve string) string {
	h.t.Helper()
	return h.User("printf %s " + quote(train) + " >train.sh; echo " + curve + " >curve; sbatch --parsable train.sh")
}

// learn runs an unknown script, and runs it again as soon as Caelum has learned its size. Meanwhile, another job
// occupies the GPUs except for one slice, because jobs can get a larger slice on idle GPUs.
func (h *host) learn() {
	h.t.Helper()
	h.completed(h.run("0:500,5:4200,10:4200"))
	ended := time.Now()
	h.jobs = append(h.jobs, h.User("sbatch --parsable --gres=gpu:13,mig:1g.5gb:13 --wrap 'sleep 3600'"))
	h.Within("the size is learned", func() bool {
		return strings.Contains(h.Try("cat", "/etc/caelum/decisions"), "\nuser 20001:")
	})
	if took := time.Since(ended); took > promised {
		h.t.Errorf("the size was learned %v after the end of the first run", took)
	} else {
		h.t.Logf("the size was learned %v after the end of the first run", took)
	}
	second := h.run("0:500,5:4200,10:4200")
	h.completed(second)
	if out := h.Must("cat", "/home/user1/slurm-"+second+".out"); !strings.Contains(out, "profile=1g.5gb ") {
		h.t.Errorf("the second job printed %s", out)
	}
}

// grow runs the script with more memory than its slice has.
func (h *host) grow() {
	h.t.Helper()
	job := h.run("0:4200,6:4600,6.5:8000,9:8000")
	show := func() string { return h.Must("scontrol", "show", "job", job) }
	h.Within("the job has grown", func() bool { return strings.Contains(show(), "caelum:grown=1g.5gb:oom:") })
	h.User("scancel " + h.jobs[0])
	h.completed(job)
	if text := show(); !strings.Contains(text, "Restarts=1") || !strings.Contains(text, "caelum:sized=1g.10gb") {
		h.t.Errorf("the job that grew:\n%s", text)
	}
}

// healthy checks that `caelum doctor` finds nothing to do. It may print notes, for which no action is necessary.
func (h *host) healthy(args ...string) {
	h.t.Helper()
	out, err := h.Command(append([]string{"caelum"}, args...)...).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "\n0 errors, 0 warnings\n") {
		h.t.Errorf("caelum %q: %v\n%s", args, err, out)
	}
}
