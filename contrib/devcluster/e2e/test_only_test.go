//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestTestOnly checks the answers to --test-only for profiles that no node offers at the moment. A job whose user sets
// the mark of such a request must not start without its slices.
func TestTestOnly(t *testing.T) {
	s := quietly(t, shared)
	for request, accepted := range map[string]bool{
		"--gres=gpu:1 --mig=4g.20gb":     true,
		"--gpus=3 -N2":                   true,
		"--gres=gpu:1,mig:7g.40gb:1":     true,
		"--gres=gpu:1 -w n1":             true,
		"--gres=gpu:1 --mig=9g.80gb":     false,
		"--gres=gpu:1 --mem=1000G":       false,
		"--gres=gpu:99":                  false,
		"--test-onl --gpus-per-node=1":   true,
		"--gres=gpu:1 -n1 : --gres=gpu:": false,
	} {
		args := append([]string{"sbatch", "--test-only"}, strings.Fields(request)...)
		a := s.call(t, "", user, "", append(args, "--wrap", "true")...)
		if strings.Contains(a.stderr, " to start at ") != accepted {
			t.Errorf("%s: status %d\n%s", request, a.status, a.stderr)
		}
		if accepted && !strings.Contains(a.stderr, "ignores MIG slices") {
			t.Errorf("%s: the answer does not mention the slices:\n%s", request, a.stderr)
		}
	}
	a := s.call(t, "", user, "", "srun", "--test-only", "--gres=gpu:1", "--mig=4g.20gb", "true")
	if !strings.Contains(a.stderr, " to start at ") {
		t.Errorf("srun: status %d\n%s", a.status, a.stderr)
	}

	id := strings.Fields(s.must(t, "", user, "env", "SPANK__SLURM_SPANK_OPTION_caelum_test_only=1",
		"_SLURM_SPANK_OPTION_caelum_test_only=1", "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_test_only=1",
		"sbatch", "--parsable", "--gres=gpu:1", "-o", "/dev/null", "--wrap", "./task test-only"))[0]
	if r, _ := s.row(t, id); r.state == "PENDING" && r.priority == "0" {
		s.must(t, "", user, "scontrol", "release", id)
	}
	s.completed(t, id)
	s.held(t, "test-only", "1g.5gb")
}
