//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// conversion runs `caelum setup` in the background on slurmctld's host.
type conversion struct {
	*clustertest.Site
	t *testing.T
}

// start starts `caelum setup` with more arguments.
func (c conversion) start(args ...string) {
	c.t.Helper()
	c.Must("", "root", "sh", "-c", "cd "+c.Dir+"; rm -f setup.*; { sh -c 'echo $$ >setup.pid; exec caelum setup "+
		strings.Join(args, " ")+"' >setup.out 2>&1; echo $? >setup.rc; } >/dev/null 2>&1 &")
}

// until waits until the command has printed text, and returns its output.
func (c conversion) until(text string) (out string) {
	c.t.Helper()
	c.Within("setup prints "+text, func() bool {
		_, err := os.Stat(filepath.Join(c.Dir, "setup.rc")) // before the output, which is then complete
		content, _ := os.ReadFile(filepath.Join(c.Dir, "setup.out"))
		out = string(content)
		if err == nil && !strings.Contains(out, text) {
			c.t.Fatalf("setup ended and printed\n%s", out)
		}
		return strings.Contains(out, text)
	})
	return out
}

// killed starts the command, and kills it when it has printed text.
func (c conversion) killed(text string, args ...string) string {
	c.t.Helper()
	c.start(args...)
	out := c.until(text)
	c.Must("", "root", "sh", "-c", "kill -9 $(cat "+c.Dir+"/setup.pid) || [ -e "+c.Dir+"/setup.rc ]")
	c.Within("the shell has written the status", func() bool {
		rc, _ := os.ReadFile(filepath.Join(c.Dir, "setup.rc"))
		return len(rc) > 0
	})
	return out
}

// interrupted starts and kills the command several times. Each run is killed in its first step, which may be complete
// by then.
func (c conversion) interrupted(times int, args ...string) {
	c.t.Helper()
	for range times {
		c.killed("step ", args...)
		if rc, _ := os.ReadFile(filepath.Join(c.Dir, "setup.rc")); string(rc) == "0\n" {
			return
		}
	}
}

// ended waits until the command has ended, and returns its output.
func (c conversion) ended(status string) (out string) {
	c.t.Helper()
	c.Within("setup ends", func() bool {
		_, err := os.Stat(filepath.Join(c.Dir, "setup.rc"))
		return err == nil
	})
	out = c.Must("", "root", "cat", c.Dir+"/setup.out")
	if rc := strings.TrimSpace(c.Must("", "root", "cat", c.Dir+"/setup.rc")); rc != status {
		c.t.Fatalf("setup exited with %s, want %s:\n%s", rc, status, out)
	}
	c.t.Log(out)
	return out
}

// untilEnd runs without a CUDA process until the test calls End("x"): MIG mode is on, so whole GPUs cannot compute.
const untilEnd = "until [ -e $HOME/end.x ]; do sleep 0.2; done"

// startConversion starts a stock cluster with two nodes, and returns the options with which setup converts them.
func startConversion(t *testing.T) (c conversion, options string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := clustertest.Start(t, cluster.Options{Stock: true, Nodes: 2, GPUs: 1, JobSubmit: dir +
		"/testdata/site_submit.lua"})
	s.Must("n1", "root", "sh", "-c", "caelum slurm-config --json > "+s.Dir+"/a100.json")
	return conversion{s, t}, "--inventory " + s.Dir + "/a100.json --job-submit " + dir +
		"/../../../spank/submit/job_submit.lua"
}

// TestSetupApply converts a site and takes this back, and kills `caelum setup` in every step. The test restarts the
// daemons, because no systemd runs in a devcluster.
func TestSetupApply(t *testing.T) {
	c, options := startConversion(t)
	before := configuration(c.Site)
	running := c.Submit(untilEnd, "--gres=gpu:1", "-t", "5")
	c.Running(running)

	apply := "--apply --nodes n[1-2] " + options
	if out := c.killed("waiting:\n", apply); !strings.Contains(out, "GPUs of n1 are in use by jobs: "+running+" of") {
		t.Errorf("setup does not name job %s:\n%s", running, out)
	}
	waiting := c.Submit("cuda-process --seconds 0.1 --print", "--gres=gpu:1", "-t", "5")
	c.End("x")
	c.interrupted(3, apply)
	c.killed("slurmctld has not been restarted", apply)
	siteRefuses(t, c.Site) // slurmctld must not read the new job_submit.lua before its restart
	second := c.Submit("true", "--gres=gpu:1", "-t", "5")
	units(t, c.RestartUnit, "slurmctld")
	c.killed("n[1-2]: slurmd has not been restarted", apply)
	units(t, c.StartUnit, "agent-n1", "agent-n2")
	units(t, c.RestartUnit, "slurmd-n1", "slurmd-n2")
	c.interrupted(4, apply)
	c.start(apply)
	c.ended("0")
	c.Completed(waiting, second)
	c.Completed(c.Submit("cuda-process --seconds 0.1", "--gres=gpu:1", "--mig=1g.5gb", "-t", "5"))
	c.start(apply)
	if out := c.ended("0"); !strings.Contains(out, "nothing to convert") {
		t.Errorf("a second conversion:\n%s", out)
	}

	c.interrupted(1, "--undo")
	waiting = c.Submit("true", "--gres=gpu:1", "-t", "5")
	c.interrupted(4, "--undo")
	c.killed("slurmctld has not been restarted", "--undo")
	units(t, c.StopUnit, "agent-n1", "agent-n2")
	units(t, c.RestartUnit, "slurmctld", "slurmd-n1", "slurmd-n2")
	c.start("--undo")
	c.until("step 5 of 6")
	if _, err := os.Stat(filepath.Join(c.Dir, "setup.rc")); err != nil {
		c.untilEndedOrRestart()
	}
	c.ended("0")
	if after := configuration(c.Site); after != before {
		t.Errorf("after --undo, the files are\n%s\nwant\n%s", after, before)
	}
	siteRefuses(t, c.Site)
	c.Completed(waiting, c.Submit("true", "--gres=gpu:1", "-t", "5"))
	c.NoneDrained()
}

// untilEndedOrRestart waits until setup ends, and restarts slurmctld whenever setup asks for it again, because
// slurmctld counts the slots that an old slurmd has registered.
func (c conversion) untilEndedOrRestart() {
	c.t.Helper()
	asked := 0
	c.Within("setup ends", func() bool {
		out := c.Must("", "root", "cat", c.Dir+"/setup.out")
		if n := strings.Count(out, "restart slurmctld again"); n > asked {
			asked = n
			units(c.t, c.RestartUnit, "slurmctld")
		}
		_, err := os.Stat(filepath.Join(c.Dir, "setup.rc"))
		return err == nil
	})
}

// TestSetupTrial converts one node of two in a partition of its own, while a job of another partition keeps running on
// the other node. An edit of slurm.conf in the meantime survives --undo.
func TestSetupTrial(t *testing.T) {
	c, options := startConversion(t)
	before := configuration(c.Site)
	// On a node without this directory, the plugin does nothing. All nodes of a devcluster have it.
	c.Must("n2", "root", "sh", "-c", "umount /run/caelum && rmdir /run/caelum")
	running := c.Submit(untilEnd, "--gres=gpu:1", "-p", "plain", "-w", "n2", "-t", "5")
	c.Running(running)

	c.start("--apply --trial n1 " + options)
	c.until("slurmctld has not been restarted")
	units(t, c.RestartUnit, "slurmctld")
	units(t, c.StartUnit, "agent-n1")
	units(t, c.RestartUnit, "slurmd-n1", "slurmd-n2")
	c.ended("0")
	c.Running(running)
	slice := c.Submit("cuda-process --seconds 0.1; echo $CUDA_VISIBLE_DEVICES", "-p", "caelum-trial", "--gres=gpu:1",
		"-t", "5", "-o", c.Home()+"/slice")
	c.Completed(slice)
	if text := c.Must("", "root", "cat", c.Home()+"/slice"); !strings.Contains(text, "MIG-") {
		t.Errorf("the job in the trial's partition got %q", text)
	}
	whole := c.Submit("echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES", "--gres=gpu:1", "-t", "5", "-o",
		c.Home()+"/whole")
	c.End("x")
	c.Completed(running, whole)
	if text := c.Must("", "root", "cat", c.Home()+"/whole"); text != "n2 0" {
		t.Errorf("the job in the other partition got %q", text)
	}

	c.Must("", "root", "sh", "-c", "sed -i '1i# edited' /etc/slurm/slurm.conf")
	later := c.Submit("true", "-p", "caelum-trial", "--gres=gpu:1", "-t", "5", "--begin=now+1hour")
	c.start("--undo")
	c.until("job " + later + " of " + clustertest.User + " is in partition caelum-trial, which ends")
	c.Must("", "root", "scontrol", "update", "job="+later, "partition=gpu", "starttime=now")
	if out := c.ended("1"); !strings.Contains(out, "-PartitionName=caelum-trial") {
		t.Errorf("setup --undo does not print the reverse patch:\n%s", out)
	}
	c.Must("", "root", "sh", "-c", "cd "+c.Dir+"; patch -p1 -d / <setup.out")
	c.start("--undo")
	c.until("slurmctld has not been restarted")
	units(t, c.StopUnit, "agent-n1")
	units(t, c.RestartUnit, "slurmctld", "slurmd-n1", "slurmd-n2")
	c.untilEndedOrRestart()
	c.ended("0")
	c.Must("", "root", "sed", "-i", "/^# edited$/d", "/etc/slurm/slurm.conf")
	c.Must("", "root", "sh", "-c", "rm -f /etc/slurm/*.orig")
	if after := configuration(c.Site); after != before {
		t.Errorf("after --undo, the files are\n%s\nwant\n%s", after, before)
	}
	c.Completed(later, c.Submit("true", "--gres=gpu:1", "-w", "n1", "-t", "5"))
	c.NoneDrained()
}
