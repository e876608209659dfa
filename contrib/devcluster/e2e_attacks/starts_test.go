//go:build e2e

package e2eattacks

import (
	"regexp"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestSlicesWithoutGPU checks a job that requests slices without a GPU in a partition that job_submit.lua does not
// manage. The job's name makes its record ambiguous, and slurmd runs no prolog for a job without a GPU. The node's
// slices must remain available to other users.
func TestSlicesWithoutGPU(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	s.Completed(s.Submit("true", "--gres=gpu:1", "--mig=1g.5gb"))
	s.Within("n1 offers 1g.5gb", func() bool {
		return regexp.MustCompile(`mig:1g.5gb:[1-9]`).
			MatchString(s.Must("", "root", "sinfo", "-h", "-p", "plain", "-O", "Gres:300"))
	})
	seven := strings.TrimSuffix(strings.Repeat("mig:1g.5gb:1,", 7), ",")
	submit := func(options ...string) (id string, err error) {
		out, stderr, err := s.Exec(
			t.Context(),
			attacker,
			append(append([]string{"sbatch", "--parsable", "-p", "plain", "-J", "x\n   JOB_GRES=a"},
				options...), "--wrap", "sleep 600")...)
		t.Log(options, out, strings.TrimSpace(stderr), err)
		return strings.TrimSpace(out), err
	}
	if id, err := submit("--gres=" + seven); err == nil {
		s.Running(id)
	}
	if id, err := submit("-H", "--gres=gpu:1"); err == nil { // job_submit.lua also checks updates
		for _, update := range []string{"Gres=gpu:0," + seven,
			"TresPerNode=gres:" + strings.ReplaceAll(seven, ",", ",gres:"), "TresPerNode=gres:mig:1g.5gb",
			"TresPerNode=gres/" + strings.ReplaceAll(seven, ",", ",gres/"), "TresPerNode=gres/mig:1g.5gb"} {
			_, stderr, err := s.Exec(t.Context(), attacker, "scontrol", "update", "job="+id, update)
			t.Log(update, strings.TrimSpace(stderr), err)
		}
		s.Must("", attacker, "scontrol", "release", id)
	}
	id := s.Must(
		"", victim, "sbatch", "--parsable", "--gres=gpu:1", "--mig=1g.5gb", "--chdir=/", "--output=/dev/null",
		"--wrap", "true",
	)
	s.Completed(id)
	whole := s.Must(
		"", victim, "sbatch", "--parsable", "--gres=gpu:1", "--mig=7g.40gb", "--chdir=/", "--output=/dev/null",
		"--wrap", "true",
	)
	s.Completed(whole)
}

// TestUnreadableRequest checks that job_submit.lua rejects malformed GRES entries with a count of 0, in submissions and
// in updates. slurmctld would store the entry and start the job, but the agents could not parse it, and could not count
// the job's slices before it has a lease.
func TestUnreadableRequest(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	for _, text := range []string{"mig:x(:0", "gpu:x y:0", "mig:-x:0"} {
		out, stderr, err := s.Exec(
			t.Context(),
			attacker,
			"sbatch",
			"--parsable",
			"--gres=gpu:1,"+text,
			"--wrap",
			"true",
		)
		if err == nil || !strings.Contains(stderr, "is not valid") {
			t.Errorf("%s: %s%s%v", text, out, stderr, err)
		}
		id := s.Submit("true", "-H", "--gres=gpu:1", "--mig=7g.40gb")
		s.Exec(t.Context(), attacker, "scontrol", "update", "job="+id, "Gres=gpu:1,mig:7g.40gb:1,"+text)
		if asked := s.Must("", "root", "squeue", "-h", "-j", id, "-O", "tres-per-node:300"); strings.Contains(
			asked,
			text,
		) {
			t.Errorf("the job requests %s after an update", asked)
		}
		s.Must("", attacker, "scancel", id)
	}
}
