//go:build e2e

package e2ewhole

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// stranger is an unprivileged user. Submit submits jobs as another one, clustertest.User.
const stranger = clustertest.Stranger

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "3")
	os.Exit(m.Run())
}

// site is a running cluster.
type site struct {
	*clustertest.Site
	t *testing.T
}

// devices is a script that prints the visible devices, and the GPUs whose device files it may open. Because the
// emulated device files have no driver, a process that may open one gets ENXIO.
const devices = `#!/bin/bash
echo visible "$CUDA_VISIBLE_DEVICES"
for f in /dev/nvidia[0-9]*; do
    if (exec 3<>"$f") 2>&1 | grep -q "No such device or address"; then echo "open $f"; fi
done
echo end
`

func start(t *testing.T, o cluster.Options) *site {
	t.Helper()
	// In cgroup v2, hugetlb stands in for the controllers misc and dmem of the driver's memory limits, which few
	// kernels have. A controller that a v1 hierarchy uses is not available.
	controllers, _ := os.ReadFile("/proc/cgroups")
	if o.MemoryLimits != "" && !regexp.MustCompile(`(?m)^hugetlb\t0\t`).Match(controllers) {
		t.Skip("cgroup v2 does not have the controller hugetlb on this machine")
	}
	o.Nodes, o.GPUs = max(o.Nodes, 1), cmp.Or(o.GPUs, 4)
	o.AgentConfig = cmp.Or(o.AgentConfig, "testdata/caelum.yaml")
	o.Model = cmp.Or(o.Model, "H100-80GB")
	s := &site{clustertest.Start(t, o), t}
	s.Write("devices", devices)
	return s
}

// output returns the visible devices and the opened device files that a run of the devices script printed.
func (s *site) output(name string) (visible, opened []string) {
	s.t.Helper()
	var lines []string
	s.Within("output "+name, func() bool {
		text, _ := os.ReadFile(filepath.Join(s.Home(), name))
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return lines[len(lines)-1] == "end"
	})
	for _, line := range lines {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "visible":
			visible = strings.Split(value, ",")
		case "open":
			opened = append(opened, value)
		}
	}
	return visible, opened
}

// files returns the device files of a job's GPUs, and the UUIDs of its devices.
func (s *site) files(id string) (files, uuids []string) {
	s.t.Helper()
	status, err := s.Status("n1")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range status.Leases {
		if fmt.Sprint(l.Job) != id {
			continue
		}
		for _, sl := range l.Slices {
			uuids = append(uuids, sl.UUID)
			if file := fmt.Sprintf("/dev/nvidia%d", sl.GPU); !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	slices.Sort(files)
	return files, uuids
}

// counted waits until a job's AllocTRES in sacct contains text, because slurmctld sends the records to slurmdbd with a
// delay.
func (s *site) counted(id, tres string) {
	s.t.Helper()
	s.Within("sacct shows "+tres+" for job "+id, func() bool {
		return strings.Contains(s.Must("", "root", "sacct", "-X", "-n", "-P", "-j", id, "-o", "AllocTRES"), tres)
	})
}

// TestFullGPUs runs an unchanged script with three GPUs alongside another user's slice. Each job must see exactly its
// own devices. With a devices cgroup, it can open exactly the device files of its own GPUs; without one, it still
// cannot open another user's full GPUs.
func TestFullGPUs(t *testing.T) {
	for _, version := range []string{"", "v1", "v2"} {
		t.Run(cmp.Or(version, "none"), func(t *testing.T) {
			s := start(t, cluster.Options{Cgroup: version, KeepDeviceFiles: version == ""})
			full := s.Submit("./devices >full.out; srun -n1 ./devices >step.out; ./hold full", "--gres=gpu:3")
			s.Running(full)
			visible, opened := s.output("full.out")
			files, uuids := s.files(full)
			if version == "" { // without a devices cgroup, every job can open the device file of a GPU with slices
				opened = slices.DeleteFunc(opened, func(f string) bool { return !slices.Contains(files, f) })
			}
			if len(files) != 3 || !strings.HasPrefix(uuids[0], "GPU-") || !slices.Equal(visible, uuids) ||
				!slices.Equal(opened, files) {
				t.Errorf("the job with %v and %v sees %v and opened %v", uuids, files, visible, opened)
			}
			if v, o := s.output("step.out"); !slices.Equal(v, visible) || version != "" && !slices.Equal(o, opened) {
				t.Errorf("the step sees %v and opened %v; the batch script saw %v and opened %v", v, o, visible, opened)
			}
			s.Must("", stranger, "cp", filepath.Join(s.Home(), "devices"), filepath.Join(s.Home(), "../"+stranger))
			small := s.Must("", stranger, "sbatch", "--parsable", "--gres=gpu:1,mig:1g.10gb:1", "--wrap",
				"./devices >small.out; sleep 600")
			s.Running(small)
			visible, opened = s.output("../" + stranger + "/small.out")
			files, uuids = s.files(small)
			if len(files) != 1 || !strings.HasPrefix(uuids[0], "MIG-") || !slices.Equal(visible, uuids) ||
				!slices.Equal(opened, files) {
				t.Errorf("the job with %v and %v sees %v and opened %v", uuids, files, visible, opened)
			}
			if version != "" {
				cpu := s.Submit("./devices >cpu.out")
				s.Completed(cpu)
				if _, opened := s.output("cpu.out"); len(opened) > 0 {
					t.Errorf("a job without GPUs opened %v", opened)
				}
			}
			s.Must("", stranger, "scancel", small)
			s.End("full")
			s.Completed(full)
			s.counted(full, "gres/gpu=3,gres/mig:full=3")
			s.NoneDrained()
			s.NothingLeft()
		})
	}
}

// TestFullSpellings requests several GPUs in every way that Slurm supports.
func TestFullSpellings(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2}) // Slurm starts the components of a heterogeneous job on separate nodes
	for _, options := range [][]string{
		{"--gres=gpu:2"},
		{"--gres=gpu:h100:2"},
		{"--gpus=2", "-N1"},
		{"--gpus-per-node=2"},
		{"--gpus-per-task=1", "-n2", "-N1"},
		{"--ntasks-per-gpu=1", "-n2", "-N1", "--gpus=2"},
		{"--gres=gpu:2,mig:full:2"},
		{"--gres=gpu:2", "--mig=full"},
		{"--gres=gpu:2", "--array=1-2"},
	} {
		id := s.Submit("./devices >spelling.out.$SLURM_JOB_ID; echo $SLURM_JOB_ID >>spelling.ids", options...)
		s.Within("no job is left", func() bool { return s.Try("", "squeue", "-h") == "" })
		ids, _ := os.ReadFile(filepath.Join(s.Home(), "spelling.ids"))
		os.Remove(filepath.Join(s.Home(), "spelling.ids"))
		runs := strings.Fields(string(ids))
		if len(runs) == 0 {
			t.Errorf("%v: job %s did not run", options, id)
		}
		for _, run := range runs {
			visible, _ := s.output("spelling.out." + run)
			if len(visible) != 2 || !strings.HasPrefix(visible[1], "GPU-") {
				t.Errorf("%v: job %s sees %v", options, run, visible)
			}
		}
	}
	// A CUDA program uses all GPUs, and checks that it can open no others.
	s.Completed(s.Submit("cuda-process --exclusive --expect-gpus 2 --seconds 0.5", "--gres=gpu:2"))
	// A step's task sees only its own GPU.
	s.Completed(s.Submit(`srun bash -c './devices >task.$SLURM_PROCID'`, "--gpus-per-task=1", "-n2", "-N1"))
	a, _ := s.output("task.0")
	b, _ := s.output("task.1")
	if len(a) != 1 || len(b) != 1 || a[0] == b[0] || !strings.HasPrefix(a[0], "GPU-") {
		t.Errorf("the tasks see %v and %v", a, b)
	}
	// A job on two nodes has two full GPUs on each node.
	s.Completed(s.Submit(`srun bash -c './devices >node.$SLURM_PROCID'`, "-N2", "--ntasks-per-node=1", "--gres=gpu:2"))
	for k := range 2 {
		if visible, _ := s.output(fmt.Sprint("node.", k)); len(visible) != 2 || !strings.HasPrefix(visible[1], "GPU-") {
			t.Errorf("task %d of a job on two nodes sees %v", k, visible)
		}
	}
	// The components of a heterogeneous job get a slice and full GPUs.
	het := s.Must("", clustertest.User, "bash", "-c", "cd "+s.Home()+
		" && sbatch --parsable --gres=gpu:1,mig:1g.10gb:1 : --gres=gpu:2 --wrap './devices >het.out'")
	s.Within("the heterogeneous job has ended", func() bool { return s.Try("", "squeue", "-h") == "" })
	if visible, _ := s.output("het.out"); len(visible) != 1 || !strings.HasPrefix(visible[0], "MIG-") {
		t.Errorf("the first component of a heterogeneous job sees %v", visible)
	}
	s.counted(het, "gres/mig:full=2")
	// One full GPU on request.
	s.Completed(s.Submit("./devices >off.out", "--gres=gpu:1", "--mig=off"))
	if visible, _ := s.output("off.out"); len(visible) != 1 || !strings.HasPrefix(visible[0], "GPU-") {
		t.Errorf("a job with --mig=off sees %v", visible)
	}
	s.NoneDrained()
	s.NothingLeft()
}

// TestNVLink runs jobs on a node whose GPUs are connected in pairs. A job with two full GPUs gets a pair, and a slice
// and a job with one full GPU share a pair.
func TestNVLink(t *testing.T) {
	s := start(t, cluster.Options{NVLink: "0,1;2,3"})
	run := func(name string, options ...string) (id string, files []string) {
		id = s.Submit("./devices >"+name+".out; ./hold "+name, options...)
		s.Running(id)
		visible, _ := s.output(name + ".out")
		files, uuids := s.files(id)
		if !slices.Equal(visible, uuids) {
			t.Errorf("job %s has %v and sees %v", name, uuids, visible)
		}
		return id, files
	}
	slice, small := run("slice", "--gres=gpu:1,mig:1g.10gb:1")
	one, single := run("one", "--gres=gpu:1", "--mig=off")
	two, pair := run("two", "--gres=gpu:2")
	got := fmt.Sprint(append(small, single...), pair)
	if got != "[/dev/nvidia0 /dev/nvidia1] [/dev/nvidia2 /dev/nvidia3]" {
		t.Errorf("the slice and the full GPU, and the job with two full GPUs, have %s", got)
	}
	node := s.Must("", "root", "scontrol", "show", "node", "n1")
	if !strings.Contains(node, "caelum-nvlink=0,1;2,3") {
		t.Errorf("the node publishes no NVLinks:\n%s", node)
	}
	// After the slice and the job with one full GPU have ended, the next job gets their pair.
	s.End("slice")
	s.End("one")
	s.Completed(slice)
	s.Completed(one)
	next, pair := run("next", "--gres=gpu:2")
	if fmt.Sprint(pair) != "[/dev/nvidia0 /dev/nvidia1]" {
		t.Errorf("the next job has %v", pair)
	}
	s.End("two")
	s.End("next")
	s.Completed(two)
	s.Completed(next)
	s.NoneDrained()
	s.NothingLeft()
}
