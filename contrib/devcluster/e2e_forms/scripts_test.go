//go:build e2e

package e2e_forms

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// resources gives the nodes of a cluster, and its catalogue nodes, the GRES and features that scripts request.
const resources = `sed -i 's/^GresTypes=gpu.*/&,nvme,lscratch,tmpfs,net/
/^NodeName=/s/Gres=[^ ]*/&,nvme:3000,lscratch:1000,tmpfs:1500G,net:8 Features=gpu,a100,dgx/' /etc/slurm/slurm.conf`

// script prints "accepted" or the error for each script, which is submitted to the partition gpu and begins later.
const script = `while read -r file; do
	if text=$(sbatch --begin=now+1hour -p gpu -o /dev/null "$file" 2>&1 </dev/null); then echo accepted; else
	echo "$text" | tail -1; fi; done; scancel -u user1`

// TestScripts submits the directives of users' scripts to both clusters, which must accept and refuse the same ones.
func TestScripts(t *testing.T) {
	clusters := start(t)
	files, err := filepath.Glob("testdata/scripts/*.sh")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, c := range clusters {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(c.Dir, "home", "user1", filepath.Base(file)), text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		do(t, c, "sh", "-c", resources)
		restart(t, c, "slurmctld", "slurmd-n1", "slurmd-n2")
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	out := both(t, clusters, script, names)
	var accepted [2]int
	for k, name := range names {
		for i := range accepted {
			if out[i][k] == "accepted" {
				accepted[i]++
			}
		}
		text, _ := os.ReadFile(files[k])
		if _, ok := agree(t, name, out[0][k], out[1][k]); !ok {
			t.Errorf("%s: with Caelum %q, without it %q\n%s", name, out[0][k], out[1][k], directives(string(text)))
		}
	}
	t.Logf("%d scripts; accepted with Caelum %d, without it %d", len(names), accepted[0], accepted[1])
}

// directives returns the directives of a script.
func directives(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "#SBATCH")
	}), "\n")
}

func do(t *testing.T, c *cluster.Cluster, args ...string) {
	t.Helper()
	if _, stderr, err := c.Exec(t.Context(), "root", args...); err != nil {
		t.Fatalf("%q: %v: %s", args, err, stderr)
	}
}

func restart(t *testing.T, c *cluster.Cluster, units ...string) {
	t.Helper()
	for _, unit := range units {
		if err := c.RestartUnit(unit); err != nil {
			t.Fatal(err)
		}
	}
}
