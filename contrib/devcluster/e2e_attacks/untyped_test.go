//go:build e2e

package e2eattacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestUntypedSlice checks jobs that request a slice without a profile, at submission or by an update, in a partition
// that Caelum does not manage. slurmctld checks the limits before it chooses a profile, so a limit on the chosen
// profile does not apply. The limits in this test do not allow the user any slices. The user must not get a slice, even
// if job_submit.lua did not check the job.
func TestUntypedSlice(t *testing.T) {
	for _, c := range []struct {
		name string
		lua  string // replaces job_submit.lua
	}{
		{"checked by job_submit.lua", ""},
		{"not checked", `function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := cluster.Options{Nodes: 1, GPUs: 1, Conf: []string{"AccountingStorageEnforce=limits"}}
			if c.lua != "" {
				o.JobSubmit = filepath.Join(t.TempDir(), "job_submit.lua")
				if err := os.WriteFile(o.JobSubmit, []byte(c.lua), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			untyped(t, clustertest.Start(t, o), c.lua != "")
		})
	}
}

// untyped submits a job with each request. If unseen is true, job_submit.lua does not check the jobs. Without
// job_submit.lua, slurmctld rejects only a mix of typed and untyped slices.
func untyped(t *testing.T, s *clustertest.Site, unseen bool) {
	var none []string
	for _, profile := range []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"} {
		none = append(none, "gres/mig:"+profile+"=0")
	}
	s.Must("", "root", "sacctmgr", "-i", "modify", "user", attacker, "set", "GrpTRES="+strings.Join(none, ","))
	started := 0
	attack := func(submit, update string) {
		name := submit + " " + update
		options := append(strings.Fields(submit), "-p", "plain", "--hold", "--no-requeue", "--wrap", "sleep 600")
		out, stderr, err := s.Exec(t.Context(), attacker, append([]string{"sbatch", "--parsable"}, options...)...)
		id := strings.TrimSpace(out)
		if err == nil && update != "" {
			change := append([]string{"scontrol", "update", "job=" + id}, strings.Fields(update)...)
			_, stderr, err = s.Exec(t.Context(), attacker, change...)
		}
		if err != nil {
			t.Logf("%s: refused: %s", name, strings.TrimSpace(stderr))
			s.Try("", "scancel", id)
			return
		}
		s.Must("", attacker, "scontrol", "release", id)
		started++
		held, job := decided(t, s, id)
		if len(held) > 0 {
			t.Errorf("%s: the job holds %+v:\n%s", name, held, job)
		}
		s.Must("", attacker, "scancel", id)
		s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
	}
	attack("--gres=gpu:1,mig:1", "")
	attack("--gres=gpu:1,mig", "")
	attack("--gres=mig:1,gpu:1,mig:1g.5gb:0", "")
	attack("--gpus=1 --gres=mig:1", "")
	attack("--gres=gpu:1,mig:1g.5gb:1", "Gres=gpu:1,mig:1")
	attack("--gres=gpu:1,mig:1g.5gb:1", "TresPerNode=gres:gpu:1,gres:mig:1")
	attack("--gres=gpu:1,mig:1g.5gb:1", "TresPerNode=gres/gpu:1,gres/mig:1")
	attack("--gres=gpu:1", "Gres=gpu:1,mig")
	if unseen && started < 4 {
		t.Errorf("the agent received requests for only %d jobs", started)
	}
	s.NoneDrained()
}
