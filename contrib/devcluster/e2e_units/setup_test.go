//go:build e2e

package e2eunits

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/machine"
)

// stock turns the machine into a site without Caelum. The files of the packages stay, and the agent has reported its
// GPUs before. It ends a second after slurmctld's start, because setup recognizes a restart by slurmctld's start time,
// which is in whole seconds.
const stock = `
caelum slurm-config --json >/root/a100.json
systemctl disable --now caelumd caelum-watch
plugins=$(scontrol show config | sed -n 's/^PluginDir *= *//p')
cp /usr/lib/caelum-plugins/* "$plugins"
cd /etc/slurm
rm -rf job_submit.lua plugstack.conf /etc/caelum/decisions /var/lib/caelum-watch
sed -i '/^NodeName=/d; /^PartitionName=/d; s/GresTypes=gpu,mig/GresTypes=gpu/; s/JobSubmitPlugins=lua//' slurm.conf
cat >>slurm.conf <<'END'
NodeName=n1 NodeAddr=127.0.0.1 CPUs=64 RealMemory=256000 Gres=gpu:a100:1
PartitionName=gpu Default=YES Nodes=n1 MaxTime=INFINITE State=UP
END
echo 'NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0' >gres.conf
systemctl stop slurmd
systemctl restart slurmctld
systemctl start slurmd
sleep 1.1
`

// TestSetup converts a site with systemd's slurmctld to the first slice and back. `caelum setup` restarts slurmctld and
// starts the watcher, and waits for the commands that it prints for the node.
func TestSetup(t *testing.T) {
	m := machine.Boot(t, machine.Options{})
	m.Must("sh", "-ec", stock)
	idle := func() bool { return m.Try("sinfo", "-h", "-n", "n1", "-o", "%T %G") == "idle gpu:a100:1\n" }
	m.Within("the site has a whole GPU", idle)
	before := m.Must("sh", "-c", "cat /etc/slurm/*")

	run := func(onNode string, args ...string) {
		t.Helper()
		var out strings.Builder
		setup := m.Command(append([]string{"caelum", "setup"}, args...)...)
		setup.Stdout, setup.Stderr = &out, &out
		if err := setup.Start(); err != nil {
			t.Fatal(err)
		}
		m.Within("setup waits for slurmd", func() bool {
			return strings.Contains(m.Try("cat", "/etc/caelum/setup.json"), `"Step":"slurmd"`)
		})
		m.Must("sh", "-ec", onNode+"systemctl restart slurmd")
		if err := setup.Wait(); err != nil {
			t.Fatalf("caelum setup %q: %v\n%s", args, err, out.String())
		}
		t.Log(out.String())
	}
	run("systemctl enable --now caelumd\n", "--apply", "--nodes", "n1", "--partition", "gpu", "--inventory",
		"/root/a100.json")
	m.Serving()
	if active := m.Property("caelum-watch", "ActiveState"); active != "active" {
		t.Errorf("caelum-watch is %s", active)
	}
	if out := m.User("srun --gres=gpu:1 cuda-process --seconds 0.1 --print"); !strings.Contains(out, "uuid=MIG-") {
		t.Errorf("the first job printed %s", out)
	}

	run("systemctl disable --now caelumd\n", "--undo")
	m.Within("the site has a whole GPU again", idle)
	if after := m.Must("sh", "-c", "cat /etc/slurm/*"); after != before {
		t.Errorf("Slurm's files were\n%s\nand are\n%s", before, after)
	}
	if active := m.Property("caelum-watch", "ActiveState"); active != "inactive" {
		t.Errorf("caelum-watch is %s", active)
	}
	m.User("srun --gres=gpu:1 true")
}
