//go:build e2e

package e2e_forms

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// asSite replaces the nodes, partitions and GRES in the cluster's files with those of a site. No slurmd runs on the
// site's nodes.
const asSite = `cd %[1]s
cp -n /etc/slurm/slurm.conf ../base.conf
grep -viE '^(NodeName|PartitionName|GresTypes)=' ../base.conf | cat - slurm.conf >/etc/slurm/slurm.conf
cp gres.conf /etc/slurm/gres.conf
cp -n /etc/hosts ../hosts; cp ../hosts /etc/hosts
grep -oiE '^NodeName=[^ ]*' slurm.conf | cut -d= -f2 | grep -vi default | while read -r names; do
	scontrol show hostnames "$names" | sed 's/^/127.0.0.1 /'; done >>/etc/hosts`

// convert prints and applies the patch for one kind of node, as in docs/install.md.
const convert = `set -e; cd %[1]s; read -r board gpus nodes partition <<<'%[2]s'
export NVML_EMULATOR_STATE=$PWD/state LD_LIBRARY_PATH=$(dirname "$(realpath "$(command -v nvml-emulator)")")
rm -rf state; mkdir -p dev; nvml-emulator init --board "$board" --gpus "$gpus" --dev-root "$PWD/dev"
caelum slurm-config --json >inventory
setup() { caelum setup --diff --nodes "$nodes" --partition "$partition" --inventory inventory --job-submit %[3]s; }
setup >%[4]s.patch
patch -s -p1 -d / <%[4]s.patch
setup | tee again; ! [ -s again ]`

// TestSites converts the configurations of sites. Afterwards, slurmctld must accept and refuse the same requests as
// before, and the inverse patches must restore the files.
func TestSites(t *testing.T) {
	directories, err := filepath.Glob("testdata/sites/*")
	if err != nil || len(directories) == 0 {
		t.Fatal(directories, err)
	}
	lua, err := filepath.Abs("../../../spank/submit/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Stock: true, Nodes: 1, GPUs: 1,
		JobSubmit: "testdata/empty.lua"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, directory := range directories {
		t.Run(filepath.Base(directory), func(t *testing.T) { testSite(t, c, directory, lua) })
	}
}

func testSite(t *testing.T, c *cluster.Cluster, directory, lua string) {
	name := filepath.Base(directory)
	at := filepath.Join(c.Dir, name)
	if err := os.CopyFS(at, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	do(t, c, "bash", "-c", fmt.Sprintf(asSite, at))
	restart(t, c, "slurmctld")
	files := "cat /etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/plugstack.conf /etc/slurm/job_submit.lua"
	before, _, err := c.Exec(t.Context(), "root", "sh", "-c", files)
	if err != nil {
		t.Fatal(err)
	}
	requests := lines(t, "sites/"+name+"/requests")
	want := on(t, c, submits, requests)

	conversions := lines(t, "sites/"+name+"/convert")
	for i, conversion := range conversions {
		do(t, c, "bash", "-c", fmt.Sprintf(convert, at, conversion, lua, fmt.Sprint(i)))
	}
	restart(t, c, "slurmctld")
	accepted := 0
	for i, got := range on(t, c, submits, requests) {
		if want[i] == "accepted" {
			accepted++
		}
		if _, ok := agree(t, name+" "+requests[i], got, want[i]); !ok {
			t.Errorf("%s: with Caelum %q, without it %q", requests[i], got, want[i])
		}
	}
	t.Logf("%d requests, %d of which stock Slurm accepts", len(requests), accepted)

	for i := range conversions {
		do(t, c, "sh", "-c", fmt.Sprintf("patch -s -R -p1 -d / <%s/%d.patch", at, len(conversions)-1-i))
	}
	if after, _, err := c.Exec(t.Context(), "root", "sh", "-c", files); err != nil || after != before {
		t.Errorf("after patch -R: %v\n%s\nwant\n%s", err, after, before)
	}
}
