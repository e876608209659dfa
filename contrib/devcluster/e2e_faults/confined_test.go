//go:build e2e

package e2efaults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// TestOtherJobOfTheUser checks that a job cannot open the slices of its user's other jobs if Slurm confines devices,
// although the user owns the capability files of them all. A job with a slice and a job without one try to open the
// capability files while other jobs start and end.
func TestOtherJobOfTheUser(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			s := start(t, cluster.Options{Nodes: 1, GPUs: 2, Cgroup: version})
			s.copyStranger()
			keep := s.Submit("./hold keep", "--gres=mig:2g.10gb:1")
			s.Running(keep)
			slice := s.Slice("n1", keep)
			var churn []string
			for range 12 {
				churn = append(churn, s.Submit("cuda-process --exclusive --seconds 0.3", "--gres=mig:1g.5gb:1"))
			}
			// The test uses both a batch script and steps, because Slurm denies them access to devices in different
			// cgroups.
			try := fmt.Sprintf("%s=%d ./stranger >", asStranger, opens/3)
			s.Write("try", "#!/bin/bash\n"+try+"$1.batch && srun -n1 bash -c '"+try+"'$1.step\n")
			tries := map[string]string{
				"slice": s.Submit("./try slice", "--gres=mig:1g.5gb:1"),
				"cpu":   s.Submit("./try cpu"),
			}
			for name, id := range tries {
				s.Completed(id)
				for _, where := range []string{"batch", "step"} {
					s.judgeOther(name+"."+where, name == "slice")
				}
			}
			s.Completed(churn...)
			if now := s.Slice("n1", keep); now != slice {
				t.Errorf("the running job held %+v before, and holds %+v now", slice, now)
			}
			s.End("keep")
			s.Completed(keep)
			s.NothingLeft()
		})
	}
}

// judgeOther checks the result of a job's attempts. The job must have opened only the two files of its own slice.
func (s *site) judgeOther(name string, hasSlice bool) {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Home(), name))
	var got attempts
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		s.t.Errorf("%s: %v", name, err)
		return
	}
	slices.Sort(got.Own)
	own := slices.Compact(got.Own)
	if hasSlice != (len(own) == 2) || !hasSlice && len(own) != 0 {
		s.t.Errorf("%s opened %q, want the two files of its own slice", name, own)
	}
	if len(got.Opened) > 0 || got.Refused < opens/3 || len(got.Other) > 0 {
		s.t.Errorf(
			"%s: %d opens of other jobs' slices succeeded, and %d failed: %.300q %q",
			name,
			len(got.Opened),
			got.Refused,
			got.Opened,
			got.Other,
		)
	}
	s.t.Logf(
		"%s: %d opens of other jobs' slices failed (%d because of the cgroup), and %d succeeded",
		name,
		got.Refused,
		got.ByCgroup,
		len(got.Opened),
	)
	if got.ByCgroup == 0 {
		s.t.Errorf("%s: the cgroup denied no open, so only the owner and mode of the files prevented the opens", name)
	}
}

// TestBoundTasksUnderConstrainDevices checks that each task sees its own slice. With ConstrainDevices=yes, Slurm
// numbers the devices of a step from 0.
func TestBoundTasksUnderConstrainDevices(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			s := start(t, cluster.Options{Nodes: 1, GPUs: 1, Cgroup: version})
			// Two jobs use slots 0 and 1, so that the device numbers within the step differ from the slots.
			keep := []string{
				s.Submit("./hold keep", "--gres=mig:1g.5gb:1"),
				s.Submit("./hold keep", "--gres=mig:1g.5gb:1"),
			}
			s.Running(keep...)
			const see = "echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES; [[ $CUDA_VISIBLE_DEVICES == *,* ]] || " +
				"cuda-process --exclusive --seconds 0.2"
			for _, c := range []struct {
				name, options string
				tasks, each   int
			}{
				{"one", "--gres=gpu:1,mig:1g.5gb:1 -n1", 1, 1},
				{"both see two", "--gres=gpu:2,mig:1g.5gb:2 -n2", 2, 2},
				{"per task", "--gpus-per-task=1 --gres=mig:1g.5gb:2 -n2", 2, 1},
				{"single", "--gres=gpu:2,mig:1g.5gb:2 -n2 --gpu-bind=single:1", 2, 1},
				{"map", "--gres=gpu:2,mig:1g.5gb:2 -n2 --gpu-bind=map_gpu:1,0", 2, 1},
			} {
				args := append(append([]string{"srun"}, strings.Fields(c.options)...), "bash", "-c", see)
				out := s.Must("", user, args...)
				seen := map[string][]string{}
				for line := range strings.Lines(out) {
					task, uuids, _ := strings.Cut(strings.TrimSpace(line), " ")
					seen[task] = strings.Split(uuids, ",")
				}
				distinct := map[string]bool{}
				for task, uuids := range seen {
					if len(uuids) != c.each {
						t.Errorf("%s: task %s sees %q", c.name, task, uuids)
					}
					for _, u := range uuids {
						distinct[u] = true
					}
				}
				if len(seen) != c.tasks || len(distinct) != max(c.each, c.tasks) {
					t.Errorf("%s: %d tasks have %d slices:\n%s", c.name, len(seen), len(distinct), out)
				}
			}
			s.End("keep")
			s.Completed(keep...)
			s.NothingLeft()
		})
	}
}
