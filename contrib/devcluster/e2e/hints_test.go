//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"caelum/internal/core/predict"
)

// learnt is the command of a script that has two lines in the decision table: 2g.10gb for the user, and 1g.10gb for all
// users.
const learnt = "./task learnt"

// uid is user's id, which is the same in every devcluster (lib/init.sh).
const uid = 20001

// learnedLines returns the decision table's two lines for the script learnt.
func learnedLines() string {
	work := fingerprint(learnt)
	return fmt.Sprintf("user %d:%s 2g.10gb 60 40\nsite %s 1g.10gb\n", uid, work, work)
}

// fingerprint returns the script fingerprint of a job submitted by submit with --gres=gpu:1.
func fingerprint(script string) string {
	return predict.Fingerprint(predict.KeyInput{Script: "#!/bin/bash\n" + script + "\n", GPUs: 1, Nodes: 1})
}

// profileLines returns the lines that list the profiles and their memory in the cluster's initial decision table.
func (s *site) profileLines() (string, error) {
	out, stderr, err := s.Exec(context.Background(), "root", "grep", "^profile ", "/etc/caelum/decisions")
	if err != nil {
		return "", fmt.Errorf("couldn't read the decision table: %w: %s", err, stderr)
	}
	return out, nil
}

// TestMemoryWish checks that a job with --mig-mem gets the smallest slice with at least the requested memory. The test
// submits jobs with sbatch, srun and salloc.
func TestMemoryWish(t *testing.T) {
	s := quietly(t, shared)
	for _, c := range []struct {
		name, profiles string
		args           []string
	}{
		{"wish-sbatch", "1g.10gb", []string{"sbatch", "--wait", "--gres=gpu:1", "--mig-mem=8G", "--wrap",
			"./task wish-sbatch"}},
		{"wish-srun", "3g.20gb", []string{"srun", "--gres=gpu:1", "--mig-mem=16G", "./task", "wish-srun"}},
		{"wish-salloc", "1g.10gb 1g.10gb", []string{"salloc", "-n2", "--gpus=2", "--mig-mem=9856", "srun",
			"--gpus-per-task=1", "./task", "wish-salloc", "2"}},
		{"wish-inherited", "1g.10gb", []string{"sbatch", "--wait", "-p", "plain", "--mig-mem=8G", "--wrap",
			"sbatch --wait -p gpu --gres=gpu:1 --wrap './task wish-inherited'"}},
		{"off-sbatch", "7g.40gb", []string{"sbatch", "--wait", "--gres=gpu:1", "--mig=off", "--wrap",
			"./task off-sbatch"}},
		{"off-srun", "7g.40gb", []string{"srun", "--gres=gpu:1", "--mig=off", "./task", "off-srun"}},
		{"off-salloc", "7g.40gb", []string{"salloc", "--gres=gpu:1", "--mig=off", "srun", "./task", "off-salloc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s.must(t, "", user, append([]string{c.args[0], "-J", c.name}, c.args[1:]...)...)
			all := s.held(t, c.name, strings.Fields(c.profiles)...)
			apart(t, all)
			first, _, _ := strings.Cut(c.profiles, " ")
			s.tagged(t, all[0].job, "caelum:sized="+first)
		})
	}
}

// TestLearned checks which slices a script gets if the decision table has one line for it that applies to the user and
// another that applies to all users.
func TestLearned(t *testing.T) {
	s := quietly(t, shared)
	id := s.submit(t, learnt, "-J", "whatever", "--gres=gpu:1")
	s.completed(t, id)
	s.held(t, "learnt", "2g.10gb")
	s.tagged(t, id, "caelum:runs=60")
	s.tagged(t, id, "caelum:busy=40")
	s.tagged(t, id, "caelum:sized=2g.10gb")

	other := s.call(t, "", stranger, "#!/bin/bash\n"+learnt+"\n", "sbatch", "--parsable", "--hold", "--gres=gpu:1")
	id = strings.TrimSpace(other.stdout)
	s.tagged(t, id, "caelum:sized=1g.10gb")
	s.must(t, "", "root", "scancel", id)

	// job_submit.lua accepts a request for less memory than the job needs, and prints a warning.
	less := s.sbatch(t, learnt, "--hold", "--gres=gpu:1", "--mig-mem=4G")
	id = strings.TrimSpace(less.stdout)
	if want := "caelum: --mig-mem=4G selects 1g.5gb, but earlier runs indicate " +
		"2g.10gb"; less.status != 0 ||
		!strings.Contains(less.stderr, want) {
		t.Errorf("sbatch returned status %d and stderr %q, want %q", less.status, less.stderr, want)
	}
	s.tagged(t, id, "caelum:sized=1g.5gb")
	// Updating the job does not change the requested memory.
	s.must(t, "", user, "scontrol", "update", "job="+id, "gres=gpu:2")
	if tres := s.requested(t, id); tres != "gpu:2,mig:1g.5gb:2" {
		t.Errorf("the job requests %s after the change to two GPUs", tres)
	}
	s.must(t, "", user, "scancel", id)
}

func TestWishesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		says    string
		command []string
	}{
		{"--mig-mem=64G: no MIG profile has enough memory; the profiles have, in MiB: 1g.5gb 4864, ",
			[]string{"sbatch", "--gres=gpu:1", "--mig-mem=64G"}},
		{"--mig-mem: couldn't read '8GX'", []string{"sbatch", "--gres=gpu:1", "--mig-mem=8GX"}},
		{"--mig-mem: couldn't read '8G;id'", []string{"env", "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_mig_mem=8G;id",
			"sbatch", "--gres=gpu:1"}},
		{"--mig=1g.5gb and --mig-mem=8G contradict each other, because 1g.5gb has 4864 MiB",
			[]string{"sbatch", "--gres=gpu:1", "--mig=1g.5gb", "--mig-mem=8G"}},
	} {
		a := shared.call(t, "", user, "", append(c.command, "--wrap", "true")...)
		if a.status == 0 || !strings.Contains(a.stderr, c.says) {
			t.Errorf("%q: status %d: %s", c.command, a.status, a.stderr)
		}
	}
}
