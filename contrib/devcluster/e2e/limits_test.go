//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

func TestLimitOnGPUsHolds(t *testing.T) {
	s := quietly(t, shared)
	s.must(t, "", "root", "sacctmgr", "-i", "add", "account", "narrow", "GrpTRES=gres/gpu=1")
	s.must(t, "", "root", "sacctmgr", "-i", "add", "user", user, "account=narrow")
	first := s.submit(t, "./task limit-first 1 4", "-A", "narrow", "--gres=gpu:1")
	second := s.submit(t, "./task limit-second", "-A", "narrow", "--gres=gpu:1")
	s.until(t, first, "the job runs", func(r row) bool { return r.state == "RUNNING" })
	s.until(
		t,
		second,
		"the job waits for the limit",
		func(r row) bool { return r.state == "PENDING" && r.reason == "AssocGrpGRES" },
	)
	s.completed(t, first, second)
	s.held(t, "limit-first", "1g.5gb")
	s.held(t, "limit-second", "1g.5gb")
}

func TestBillingFollowsTheSizes(t *testing.T) {
	s := quietly(t, shared)
	for gres, want := range map[string]string{"gpu:1": "5", "gpu:2": "10", "mig:2g.10gb:1": "20",
		"mig:2g.10gb:1,mig:1g.5gb:1": "25"} {
		t.Run(gres, func(t *testing.T) {
			t.Parallel()
			id := s.submit(t, "true", "-p", "billed", "--gres="+gres)
			s.completed(t, id)
			s.accounted(t, id, "billing="+want+",")
		})
	}
}

// TestExclusive checks that an --exclusive job gets only the slices that it requested, although Slurm allocates all of
// the node's GRES to it.
func TestExclusive(t *testing.T) {
	s := quietly(t, shared)
	t.Run("without a GPU", func(t *testing.T) {
		t.Parallel()
		id := s.submit(
			t,
			"env >exclusive.env; caelum job $SLURM_JOB_ID >exclusive.job 2>&1; echo $? >>exclusive.job",
			"--exclusive",
		)
		s.completed(t, id)
		env := "\n" + s.read(t, "exclusive.env")
		for _, unwanted := range []string{"MIG-", "\nSLURM_GPUS_ON_NODE="} {
			if strings.Contains(env, unwanted) {
				t.Errorf("the environment of the job contains %q:\n%s", unwanted, env)
			}
		}
		if !strings.Contains(env, "\nCUDA_VISIBLE_DEVICES=NoDevFiles\n") {
			t.Errorf("CUDA_VISIBLE_DEVICES is not NoDevFiles in the environment of the job:\n%s", env)
		}
		if comment := s.field(t, id, "AdminComment"); comment != "" {
			t.Errorf("the admin_comment of the job contains a tag of Caelum: %s", comment)
		}
		for _, node := range s.nodes {
			for line := range s.agentLog(t, node) {
				message, _ := line["msg"].(string)
				if job, _ := line["job"].(float64); job == number(t, id) && strings.HasPrefix(message, "leased") {
					t.Errorf("the agent granted a lease: %v", line)
				}
			}
		}
	})
	t.Run("with one", func(t *testing.T) {
		t.Parallel()
		id := s.submit(t, "srun ./task exclusive", "--exclusive", "--gres=gpu:1")
		s.completed(t, id)
		counts(t, s.held(t, "exclusive", "1g.5gb"), "1")
	})
	t.Run("with two, of a size", func(t *testing.T) {
		t.Parallel()
		id := s.submit(t, "srun --gpus-per-task=1 ./task exclusive-two 2", "--exclusive", "-n2", "--gres=mig:3g.20gb:2")
		s.completed(t, id)
		apart(t, s.held(t, "exclusive-two", "3g.20gb", "3g.20gb"))
	})
}
