//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// growth holds the variables for JAX and TensorFlow that the plugin adds to a job's environment.
const growth = "TF_FORCE_GPU_ALLOW_GROWTH=true XLA_PYTHON_CLIENT_PREALLOCATE=false"

// TestMemoryGrowth checks the variables that prevent JAX and TensorFlow from reserving GPU memory. Each job records
// them in its batch script and in a step of the script.
func TestMemoryGrowth(t *testing.T) {
	s := quietly(t, shared)
	check := func(t *testing.T, name, want string, options ...string) {
		t.Helper()
		file := "growth-" + name
		script := "for run in '' srun; do echo $($run env | grep -E '^(XLA|TF)_' | sort); done >" + file
		s.completed(t, s.submit(t, script, options...))
		if got := s.read(t, file); got != want+"\n"+want+"\n" {
			t.Errorf("the batch script and the step have the variables\n%s, want two lines\n%s", got, want)
		}
	}

	check(t, "slice", growth, "--gres=gpu:1")
	check(t, "whole", growth, "--gres=gpu:1", "--mig=off")
	check(t, "no-slice", "", "-n1")
	jax := "XLA_CLIENT_MEM_FRACTION=.5"
	check(t, "jax", "TF_FORCE_GPU_ALLOW_GROWTH=true "+jax, "--gres=gpu:1", "--export=ALL,"+jax)
	own := []string{"TF_FORCE_GPU_ALLOW_GROWTH=", "XLA_PYTHON_CLIENT_PREALLOCATE=true"}
	check(t, "own", strings.Join(own, " "), "--gres=gpu:1", "--export=ALL,"+strings.Join(own, ","))

	const plugstack = "/etc/slurm/plugstack.conf"
	s.must(t, "", "root", "sed", "-i", "s/spank_caelum.so$/& memory_growth=no/", plugstack)
	defer s.must(t, "", "root", "sed", "-i", "s/ memory_growth=no$//", plugstack)
	check(t, "off", "", "--gres=gpu:1")
}
