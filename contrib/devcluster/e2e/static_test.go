//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestStaticTypes submits batch scripts of a site with static MIG devices, which name the devices' types. Each job gets
// a slice of the profile that the type states, and its steps see the same request as its script, also if they
// repeat the type. srun and salloc can request one type.
func TestStaticTypes(t *testing.T) {
	s := quietly(t, shared)
	for name, c := range map[string]struct {
		options, profiles, tasks string
	}{
		"gres":     {"--gres=gpu:1g.5gb:1", "1g.5gb", "1"},
		"model":    {"--gres=gpu:a100_2g.10gb:1", "2g.10gb", "1"},
		"gpus":     {"--gpus=2g.10gb:1", "2g.10gb", "1"},
		"per-node": {"--gpus-per-node=nvidia_a100_1g.5gb:1", "1g.5gb", "1"},
		"per-task": {"-n2 --gpus-per-task=1g.5gb:1", "1g.5gb 1g.5gb", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.submit(t, "srun ./task static-"+name+" "+c.tasks, strings.Fields(c.options)...)
			s.completed(t, id)
			apart(t, s.held(t, "static-"+name, strings.Fields(c.profiles)...))
		})
	}
	for name, c := range map[string]struct {
		command, profiles string
	}{
		"srun":          {"srun --gres=gpu:a100_1g.5gb:1 ./task static-srun", "1g.5gb"},
		"srun-gpus":     {"srun --gpus=2g.10gb ./task static-srun-gpus", "2g.10gb"},
		"srun-per-task": {"srun -n2 --gpus-per-task=1g.5gb:1 ./task static-srun-per-task 2", "1g.5gb 1g.5gb"},
		"salloc":        {"salloc --gpus=1g.5gb:1 srun --gres=gpu:1g.5gb:1 ./task static-salloc", "1g.5gb"},
		"script": {"sbatch -W -o /dev/null --gres=gpu:1g.5gb:1 --wrap 'srun --gres=gpu:1g.5gb:1 ./task static-script'",
			"1g.5gb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.must(t, "", user, "bash", "-c", c.command)
			apart(t, s.held(t, "static-"+name, strings.Fields(c.profiles)...))
		})
	}
	a := s.call(t, "", user, "", "srun", "--gres=gpu:1g.5gb:1,gpu:2g.10gb:1", "true")
	if a.status == 0 || !strings.Contains(a.stderr, "write --gpus=1 --mig=2g.10gb") {
		t.Errorf("status %d: %s", a.status, a.stderr)
	}
	a = s.sbatch(t, "true", "--gres=gpu:a100_9g.99gb:1")
	if a.status == 0 || !strings.Contains(a.stderr, "the MIG profile 9g.99gb does not exist") {
		t.Errorf("status %d: %s", a.status, a.stderr)
	}
}
