//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// siteConf is a script that turns the configuration of a stock cluster into that of a site with its own GPU types, GPUs
// of another model in the same partition, and other GRES. One line of gres.conf applies to all nodes.
const siteConf = `sed -i 's/^GresTypes=gpu/&,nvme,lscratch/
s/\(NodeName=n1 .*\)Gres=.*/\1Gres=gpu:A100:2,nvme:3000,lscratch:no_consume:1500G Feature=A100/
s/\(NodeName=n2 .*\)Gres=.*/\1Gres=gpu:v100:2,nvme:3000 Feature=v100/' /etc/slurm/slurm.conf
cat >/etc/slurm/gres.conf <<END
NodeName=n1 Name=gpu Type=A100 File=/dev/nvidia[0-1]
Name=gpu Type=v100 File=/dev/nvidia[0-1]
Name=nvme Count=3000 Flags=CountOnly
NodeName=n1 Name=lscratch Count=1500G Flags=CountOnly
END`

// siteRequests maps requests that are accepted at the site to the node where the job runs.
var siteRequests = map[string]string{
	"--gres=gpu:A100:1":                        "n1",
	"--gpus=A100:2":                            "n1",
	"--gres=gpu:A100:1,nvme:50,lscratch:100G":  "n1",
	"--constraint=A100 --gres=gpu:1":           "n1",
	"--gres=gpu:v100:1":                        "n2",
	"--gpus-per-node=v100:2":                   "n2",
	"--constraint=v100 --gres=gpu:1,nvme:50":   "n2",
	"--nodelist=n2 --gres=gpu:1":               "n2",
	"--partition=plain --nodelist=n2 --gpus=1": "n2",
	"--partition=plain --gres=gpu:A100:1":      "n1",
}

// TestSetupSite converts one node of a site and checks that its users' requests are accepted as before and run on the
// same nodes: with a slice on the converted node, and with a whole GPU on the other one.
func TestSetupSite(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := clustertest.Start(t, cluster.Options{Stock: true, Nodes: 2, GPUs: 2, JobSubmit: dir +
		"/testdata/site_submit.lua"})
	drained(t, s, func() {
		// slurmctld keeps the old GPU type if a slurmd that still has it registers after slurmctld's restart.
		units(t, s.StopUnit, "slurmd-n1", "slurmd-n2")
		s.Must("", "root", "sh", "-c", siteConf)
		units(t, s.RestartUnit, "slurmctld")
		units(t, s.StartUnit, "slurmd-n1", "slurmd-n2")
	})
	s.Within("slurmd of n2 has registered its new type", func() bool { // drained waits only for n1
		return strings.Contains(s.Must("", "root", "scontrol", "show", "node", "n2"), "Gres=gpu:v100:2")
	})
	before := configuration(s)
	siteJobs(t, s, "")
	// On a node without this directory, the plugin does nothing. All nodes of a devcluster have it.
	s.Must("n2", "root", "sh", "-c", "umount /run/caelum && rmdir /run/caelum")

	s.Must("n1", "root", "sh", "-c", "caelum slurm-config --json > "+s.Dir+"/a100.json")
	setup := "caelum setup --diff --nodes n1 --inventory " + s.Dir + "/a100.json --catalogue 1 --job-submit " + dir +
		"/../../../spank/submit/job_submit.lua"
	s.Must("", "root", "sh", "-c", setup+" > "+s.Dir+"/caelum.patch")
	drained(t, s, func() {
		s.Must("", "root", "sh", "-c", "patch -p1 -d / < "+s.Dir+"/caelum.patch")
		units(t, s.RestartUnit, "slurmctld")
		units(t, s.StartUnit, "agent-n1")
		units(t, s.RestartUnit, "slurmd-n1", "slurmd-n2")
	})
	if again := s.Must("", "root", "sh", "-c", setup); again != "" {
		t.Errorf("the second patch is not empty:\n%s", again)
	}
	siteJobs(t, s, "MIG-")
	// The catalogue also makes slurmctld accept a request for a slice that is not on offer.
	s.Completed(s.Submit("true", "--gres=gpu:A100:1,nvme:50", "--mig=3g.20gb", "-t", "5"))
	s.Must("", "root", "caelum", "doctor", "--controller")

	drained(t, s, func() {
		units(t, s.StopUnit, "agent-n1")
		s.Must("", "root", "sh", "-c", "patch -R -p1 -d / < "+s.Dir+"/caelum.patch")
		units(t, s.RestartUnit, "slurmctld", "slurmd-n1", "slurmd-n2")
	})
	if after := configuration(s); after != before {
		t.Errorf("after patch -R, the files are\n%s\nwant\n%s", after, before)
	}
	s.NoneDrained()
}

// siteJobs runs a job with each of the site's requests. CUDA_VISIBLE_DEVICES of the jobs on n1 must begin with device.
func siteJobs(t *testing.T, s *clustertest.Site, device string) {
	t.Helper()
	for request, node := range siteRequests {
		id := s.Submit("echo on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES", append(strings.Fields(request), "-t", "5",
			"-o", s.Home()+"/%j.out")...)
		s.Completed(id)
		device := device
		if node == "n2" {
			device = ""
		}
		text := s.Must("", "root", "cat", s.Home()+"/"+id+".out")
		if !strings.HasPrefix(text, "on "+node+" with "+device) || strings.Contains(text, "MIG-") != (device != "") {
			t.Errorf("%s ran %s, want %s with %s", request, text, node, device)
		}
	}
}
