//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// task is the record of one run of testdata/task.
type task struct {
	job, step, proc, node, restart string
	visible, gpusOnNode            string // CUDA_VISIBLE_DEVICES and SLURM_GPUS_ON_NODE, or "unset"
	uid, mapped                    string // the user id, and JOBID:UID of the device in the job map when the task began
	met                            bool   // the given number of tasks used their devices at the same time
	uuid, gpu, profile, start      string // the device
}

// tasks returns the records of the runs of `task NAME`, in the order of jobs, steps and tasks, and any problems with
// them.
func (s *site) tasks(t *testing.T, name string) (all []task, problems string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.home(), "tasks", name, "*.task"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]string{}
		for _, word := range strings.Fields(string(text)) {
			key, value, _ := strings.Cut(word, "=")
			said[key] = value
		}
		all = append(all, task{
			job: said["job"], step: said["step"], proc: said["proc"], node: said["node"], restart: said["restart"],
			uid: said["uid"], mapped: said["mapped"],
			visible: said["visible"], gpusOnNode: said["gpus_on_node"], met: said["met"] == "yes",
			uuid: said["uuid"], gpu: said["gpu"], profile: said["profile"], start: said["start"],
		})
		text, _ = os.ReadFile(strings.TrimSuffix(file, ".task") + ".error")
		problems += string(text)
	}
	return all, problems
}

// held checks that `task NAME` ran once for each of the profiles, and that each run used exactly one device of its
// profile. It returns the records of the runs.
func (s *site) held(t *testing.T, name string, profiles ...string) []task {
	t.Helper()
	all, problems := s.tasks(t, name)
	var got []string
	for _, one := range all {
		got = append(got, one.profile)
		if !one.met || one.uuid == "" || one.visible != one.uuid {
			t.Errorf("task %s of step %s has the wrong record %+v", one.proc, one.step, one)
		}
	}
	slices.Sort(got)
	slices.Sort(profiles)
	if !slices.Equal(got, profiles) {
		t.Errorf("the tasks used the profiles %q, want %q\n%s", got, profiles, problems)
	}
	return all
}

// apart checks that the tasks had different devices.
func apart(t *testing.T, all []task) {
	t.Helper()
	seen := map[string]bool{}
	for _, one := range all {
		device := one.node + " " + one.uuid
		if seen[device] {
			t.Errorf("two tasks used the device %s", device)
		}
		seen[device] = true
	}
}

// counts checks that SLURM_GPUS_ON_NODE has the expected value in every task.
func counts(t *testing.T, all []task, want string) {
	t.Helper()
	for _, one := range all {
		if one.gpusOnNode != want {
			t.Errorf(
				"SLURM_GPUS_ON_NODE of task %s in step %s of job %s is %s, want %s",
				one.proc,
				one.step,
				one.job,
				one.gpusOnNode,
				want,
			)
		}
	}
}
