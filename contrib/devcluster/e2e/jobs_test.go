//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestKindsOfJob runs all kinds of jobs at the same time. Each job must get the expected slices, and no job may get
// another job's slice.
func TestKindsOfJob(t *testing.T) {
	s := quietly(t, shared)
	hold := s.holds(t)
	for _, test := range []struct {
		name     string
		options  string // options of sbatch
		script   string // text of the script, in which TASK is replaced with "./task NAME"
		profiles string // profiles of the devices that the tasks used, one per task
		gpus     string // SLURM_GPUS_ON_NODE of each task
		node     string // the node, if the job can run on only one node
		tres     string // a part of AllocTRES
	}{
		{name: "array", options: "--array=0-3 --gres=gpu:1", script: "TASK 4", profiles: "1g.5gb 1g.5gb 1g.5gb 1g.5gb",
			gpus: "1", tres: "gres/gpu=1,gres/mig:1g.5gb=1,gres/mig=1"},
		{name: "array-throttled", options: "--array=1-4%2 --gpus=1", script: "srun TASK",
			profiles: "1g.5gb 1g.5gb 1g.5gb 1g.5gb", gpus: "1"},
		{name: "two-slices-two-tasks", options: "--gres=gpu:2 -n2", script: "srun --gpus-per-task=1 TASK 2",
			profiles: "1g.5gb 1g.5gb", gpus: "2", tres: "gres/gpu=2,gres/mig:1g.5gb=2,gres/mig=2"},
		{name: "map-gpu", options: "--gres=gpu:2 -n2", script: "srun --gpu-bind=map_gpu:0,1 TASK 2",
			profiles: "1g.5gb 1g.5gb", gpus: "2"},
		{name: "mask-gpu", options: "--gres=gpu:2 -n2", script: "srun --gpu-bind=mask_gpu:2,1 TASK 2",
			profiles: "1g.5gb 1g.5gb", gpus: "2"},
		{name: "whole", options: "--gres=mig:7g.40gb:1", script: "srun TASK", profiles: "7g.40gb", gpus: "1",
			tres: "gres/gpu=1,gres/mig:7g.40gb=1,gres/mig=1"},
		{name: "typed", options: "--gres=mig:2g.10gb:1", script: "TASK", profiles: "2g.10gb", gpus: "1"},
		{name: "typed-two", options: "--gres=mig:1g.10gb:2 -n2", script: "srun --gpus-per-task=1 TASK 2",
			profiles: "1g.10gb 1g.10gb", gpus: "2"},
		{name: "typed-and-gpu", options: "--gres=gpu:1,mig:3g.20gb:1", script: "srun TASK", profiles: "3g.20gb",
			gpus: "1"},
		{name: "typed-both", options: "--gres=gpu:a100:1,mig:4g.20gb:1", script: "srun TASK", profiles: "4g.20gb",
			gpus: "1"},
		{name: "option", options: "--gres=gpu:1 --mig=2g.10gb", script: "srun TASK", profiles: "2g.10gb", gpus: "1"},
		{name: "unequal", options: "--gres=mig:1g.5gb:1,mig:2g.10gb:1 -n2", script: "srun --gpus-per-task=1 TASK 2",
			profiles: "1g.5gb 2g.10gb", gpus: "2"},
		{name: "het", options: "--gres=gpu:1 : --gres=mig:2g.10gb:1", script: "srun --het-group=0,1 TASK 2",
			profiles: "1g.5gb 2g.10gb", gpus: "1"},
		{name: "het-nodelist", options: "-w n1 --gres=gpu:1 : -w n2 --gres=mig:2g.10gb:1",
			script: "srun --het-group=0,1 TASK 2", profiles: "1g.5gb 2g.10gb", gpus: "1"},
		{name: "nodes", options: "-N 2 --ntasks-per-node=1 --gres=gpu:1", script: "srun TASK 2",
			profiles: "1g.5gb 1g.5gb", gpus: "1"},
		{name: "nodes-typed", options: "-N 2 --ntasks-per-node=1 --gres=mig:3g.20gb:1", script: "srun TASK 2",
			profiles: "3g.20gb 3g.20gb", gpus: "1"},
		{name: "nodes-gpus", options: "-N 2 --ntasks-per-node=1 --gpus=2", script: "srun TASK 2",
			profiles: "1g.5gb 1g.5gb", gpus: "1"},
		{name: "nodelist", options: "-w n2 --gres=gpu:1", script: "srun TASK", profiles: "1g.5gb", gpus: "1",
			node: "n2"},
		{name: "nodelist-large", options: "-w n1 --gres=mig:7g.40gb:1", script: "srun TASK", profiles: "7g.40gb",
			gpus: "1", node: "n1"},
		{name: "exclude", options: "--exclude=n2 --gres=gpu:1", script: "srun TASK", profiles: "1g.5gb", gpus: "1",
			node: "n1"},
		{name: "begin", options: "--begin=now+5 --gres=gpu:1", script: "srun TASK", profiles: "1g.5gb", gpus: "1"},
		{name: "begin-nodelist", options: "--begin=now+5 -w n1 --gres=mig:2g.10gb:1", script: "srun TASK",
			profiles: "2g.10gb", gpus: "1", node: "n1"},
		{name: "dependency", options: "--dependency=singleton -w n2 --gres=gpu:1", script: "srun TASK",
			profiles: "1g.5gb", gpus: "1", node: "n2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name := "kind-" + test.name
			options := append([]string{"--job-name=" + name}, strings.Fields(test.options)...)
			id := s.submit(t, strings.ReplaceAll(test.script, "TASK", "./task "+name), options...)
			id, _, _ = strings.Cut(id, ";")
			s.completed(t, parts(test.name, id)...)
			all := s.held(t, name, strings.Fields(test.profiles)...)
			if test.name != "array-throttled" { // the tasks of the array run one after another
				apart(t, all)
			}
			counts(t, all, test.gpus)
			for _, one := range all {
				// In every component of a het job, SLURM_JOB_ID is the id of the first one.
				if want := one.job + ":" + one.uid; one.mapped != want && !strings.HasPrefix(test.name, "het") {
					t.Errorf("the job map contained %q when the task began, want %q", one.mapped, want)
				}
				if test.node != "" && one.node != test.node {
					t.Errorf("the task ran on %s, want %s", one.node, test.node)
				}
			}
			if test.tres != "" {
				s.accounted(t, parts(test.name, id)[0], test.tres)
			}
			if strings.HasPrefix(test.name, "node") || strings.Contains(test.options, "-w ") {
				for _, part := range parts(test.name, id) {
					s.tagged(t, part, "caelum:released")
				}
			}
		})
	}
	t.Cleanup(func() { hold.check(t) })
}

// TestHetAlone checks that a het job starts on an idle cluster. slurmctld runs each component on a different node,
// although one would have room for them all.
func TestHetAlone(t *testing.T) {
	s := quietly(t, shared)
	for k, c := range []struct {
		options  string
		profiles string
	}{
		{"--gres=gpu:1 : --gres=mig:2g.10gb:1", "1g.5gb 2g.10gb"},
		{"--gres=gpu:1 : --gres=gpu:2", "1g.5gb 1g.5gb"},
		{"--gres=gpu:1 : -w n1 --gres=gpu:1", "1g.5gb 1g.5gb"},
	} {
		name := fmt.Sprint("het-alone-", k)
		id := s.submit(
			t,
			"srun --het-group=0,1 --gpus-per-task=1 ./task "+name+" 2",
			append([]string{"--job-name=" + name}, strings.Fields(c.options)...)...)
		id, _, _ = strings.Cut(id, ";")
		s.completed(t, parts("het", id)...)
		apart(t, s.held(t, name, strings.Fields(c.profiles)...))
	}
	// A component without slices also uses a node: the first one on which it can run.
	for _, options := range []string{"-n1 : --gres=gpu:1", "--gres=gpu:1 : -n1"} {
		id := s.submit(t, "true", strings.Fields(options)...)
		id, _, _ = strings.Cut(id, ";")
		s.completed(t, parts("het", id)...)
	}
}

// parts returns the ids under which squeue lists a job.
func parts(kind, id string) []string {
	switch kind {
	case "array":
		return []string{id + "_0", id + "_1", id + "_2", id + "_3"}
	case "array-throttled":
		return []string{id + "_1", id + "_2", id + "_3", id + "_4"}
	case "het", "het-nodelist":
		return []string{id + "+0", id + "+1"}
	}
	return []string{id}
}

// accounted checks that sacct shows the expected allocated GRES for a job.
func (s *site) accounted(t *testing.T, id, want string) {
	t.Helper()
	var got string
	within(t, "sacct has "+want, func() bool {
		got = s.must(t, "", user, "sacct", "-nPX", "-j", id, "-o", "alloctres")
		return strings.Contains(got, want)
	})
}

// tagged checks that a job's admin_comment has a tag.
func (s *site) tagged(t *testing.T, id, word string) {
	t.Helper()
	within(t, "job "+id+" has the tag "+word, func() bool {
		return strings.Contains(" "+s.field(t, id, "AdminComment")+" ", " "+word+" ")
	})
}

func TestUnknownProfileIsRefusedWithTheList(t *testing.T) {
	for _, options := range [][]string{{"--gres=mig:9g.99gb:1"}, {"--gres=gpu:1", "--mig=9g.99gb"},
		{"--gres=gpu:1,mig:9g.99gb:1"}} {
		a := shared.sbatch(t, "true", options...)
		if a.status == 0 || !strings.Contains(a.stderr, "9g.99gb") ||
			!strings.Contains(a.stderr, strings.Join(profiles, ", ")) {
			t.Errorf("%q: status %d: %s", options, a.status, a.stderr)
		}
	}
	if a := shared.sbatch(t, "true", "--gres=mig:closed:1"); a.status == 0 {
		t.Error("slurmctld accepted a job that requests the type closed")
	}
}
