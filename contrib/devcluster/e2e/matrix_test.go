//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// spelling is a way to request one GPU, or two GPUs for a job with two tasks.
type spelling struct {
	name     string
	one, two []string
	// step is the option that a step of the two-GPU job uses to request one GPU. Because a step inherits a per-job
	// count, two steps with `srun --gres=gpu:1` in a job with --gpus=2 run one after another on Slurm 22.05.8, even
	// without Caelum.
	step string
}

var spellings = []spelling{
	{"--gres=gpu:1", []string{"--gres=gpu:1"}, []string{"-n2", "--gres=gpu:2"}, "--gres=gpu:1"},
	{"--gpus=1", []string{"--gpus=1"}, []string{"-n2", "--gpus=2"}, "--gpus=1"},
	{"-G 1", []string{"-G", "1"}, []string{"-n2", "-G", "2"}, "--gpus=1"},
	{"--gpus-per-node=1", []string{"--gpus-per-node=1"}, []string{"-n2", "--gpus-per-node=2"}, "--gres=gpu:1"},
	{"--gpus-per-task=1", []string{"--gpus-per-task=1"}, []string{"-n2", "--gpus-per-task=1"}, "--gres=gpu:1"},
	{
		"--gpus-per-task=1 -n1",
		[]string{"--gpus-per-task=1", "-n1"},
		[]string{"-n2", "--gpus-per-task=1"},
		"--gres=gpu:1",
	},
	{"--gres=gpu:a100:1", []string{"--gres=gpu:a100:1"}, []string{"-n2", "--gres=gpu:a100:2"}, "--gres=gpu:1"},
}

// form describes the structure of a job script.
type form struct {
	name   string
	two    bool     // the job has two tasks, each with a GPU
	extra  []string // options of the job
	script string   // TASK is replaced with the task, and STEP with the spelling's step option
	// direct is the script that a direct srun runs. If direct is "", srun runs the task itself. The steps that the
	// script starts need --overlap, because they run at the same time as the script's own step.
	direct string
	// bind is an option that assigns a different GPU to each of the two tasks of a direct srun.
	bind string
}

var forms = []form{
	{name: "no srun", script: "TASK"},
	{name: "srun", script: "srun TASK", direct: "srun --overlap TASK"},
	{name: "srun --gres=gpu:1", script: "srun --gres=gpu:1 TASK", direct: "srun --overlap --gres=gpu:1 TASK"},
	{name: "srun --gpus=1", script: "srun --gpus=1 TASK", direct: "srun --overlap --gpus=1 TASK"},
	{name: "two steps", two: true, bind: "--gpu-bind=single:1",
		script: "srun --exact -n1 STEP TASK & first=$!\nsrun --exact -n1 STEP TASK & second=$!\n" +
			"wait $first; status=$?\nwait $second && exit $status"},
	{name: "--cpus-per-gpu", extra: []string{"--cpus-per-gpu=2"}, script: "srun TASK"},
	{name: "--mem-per-gpu", extra: []string{"--mem-per-gpu=100M"}, script: "srun TASK"},
}

// modes are the three submission commands.
var modes = []struct {
	name string
	run  func(t *testing.T, s *site, c cell) string
}{
	{"sbatch", runSbatch}, {"srun", runSrun}, {"salloc", runSalloc},
}

// cell is one entry of the matrix.
type cell struct {
	mode     string
	spelling spelling
	form     form
}

// name returns a name for the cell that is also a valid directory name.
func (c cell) name() string {
	return strings.NewReplacer(" ", "_", "=", "_", ":", "_").Replace(c.mode + "_" + c.spelling.name + "_" + c.form.name)
}

func (c cell) options() []string {
	return append(
		slices.Clone(map[bool][]string{false: c.spelling.one, true: c.spelling.two}[c.form.two]),
		c.form.extra...)
}

func (c cell) tasks() int { return map[bool]int{false: 1, true: 2}[c.form.two] }

func (c cell) command() string { return fmt.Sprintf("./task %s %d", c.name(), c.tasks()) }

func (c cell) fill(script string) string {
	return strings.NewReplacer("TASK", c.command(), "STEP", c.spelling.step).Replace(script)
}

// outcome is the result of running a cell.
type outcome struct {
	refusal string // Slurm's message if no task ran
	gpus    []string
	tasks   []task
	errors  string
}

// TestScriptMatrix submits every cell to stock Slurm and to Slurm with Caelum. Every job that stock Slurm runs must
// also run with Caelum, and each task must have a different device. If stock Slurm rejects a job, Slurm with Caelum may
// reject it with the same message. SLURM_GPUS_ON_NODE must have the same value in both cases.
func TestScriptMatrix(t *testing.T) {
	s := quietly(t, shared)
	stock := start(t, cluster.Options{Nodes: 2, GPUs: 2, NoAgent: true, Conf: conf})
	report := &report{cells: map[string]string{}}
	t.Cleanup(func() { report.finish(t) })
	for _, mode := range modes {
		for _, sp := range spellings {
			for _, f := range forms {
				c := cell{mode.name, sp, f}
				t.Run(mode.name+"/"+sp.name+"/"+f.name, func(t *testing.T) {
					t.Parallel()
					var want, got outcome
					var both sync.WaitGroup
					both.Go(func() { want = stock.outcome(t, c, mode.run) })
					both.Go(func() { got = s.outcome(t, c, mode.run) })
					both.Wait()
					if !t.Failed() {
						compare(t, c, want, got)
					}
					report.note(c, want, got, t.Failed())
				})
			}
		}
	}
}

func compare(t *testing.T, c cell, want, got outcome) {
	t.Helper()
	if got.refusal != "" {
		if got.refusal != want.refusal {
			t.Errorf("slurmctld refused the job:\n%s\nstock Slurm answered %q and ran %d tasks",
				got.refusal, want.refusal, len(want.tasks))
		}
		return
	}
	if want.refusal == "" && !slices.Equal(got.gpus, want.gpus) {
		t.Errorf("SLURM_GPUS_ON_NODE is %q with Caelum, and %q on stock Slurm", got.gpus, want.gpus)
	}
	if len(got.tasks) != c.tasks() || len(want.tasks) != c.tasks() && want.refusal == "" {
		t.Errorf("%d tasks ran with Caelum, and %d tasks ran on stock Slurm, want %d\n%s",
			len(got.tasks), len(want.tasks), c.tasks(), got.errors)
	}
	for _, one := range got.tasks {
		if !one.met || one.profile != "1g.5gb" || one.visible != one.uuid {
			t.Errorf("%+v\n%s", one, got.errors)
		}
	}
	apart(t, got.tasks)
}

func (s *site) outcome(t *testing.T, c cell, run func(*testing.T, *site, cell) string) outcome {
	var o outcome
	refusal := run(t, s, c)
	o.tasks, o.errors = s.tasks(t, c.name())
	for _, one := range o.tasks {
		o.gpus = append(o.gpus, one.gpusOnNode)
	}
	slices.Sort(o.gpus)
	if len(o.tasks) == 0 {
		o.refusal = refusal
	}
	return o
}

// said returns Slurm's message without the parts that differ between jobs.
func said(stderr string) string {
	var lines []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", strings.Contains(line, "queued and waiting"), strings.Contains(line, "has been allocated"),
			strings.Contains(line, "Granted job allocation"), strings.Contains(line, "Relinquishing"),
			strings.Contains(line, "has been revoked"),
			// Slurm 26.05 prints the following messages even if no daemon is slow.
			strings.Contains(line, "Pending job allocation"), strings.Contains(line, "are ready for job"),
			strings.Contains(line, "Waiting for resource configuration"):
			continue
		}
		lines = append(lines, taskEnds.ReplaceAllString(numbers.ReplaceAllString(line, "$1 N"), "n1: task"))
	}
	// srun's message that a task has ended can precede or follow the task's own messages.
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Count(a, "n1: task") - strings.Count(b, "n1: task")
	})
	return strings.Join(lines, " / ")
}

// taskEnds matches the start of srun's message that a task has ended. Both clusters may choose either node.
var taskEnds = regexp.MustCompile(`n[0-9]+: task`)

var numbers = regexp.MustCompile(`(Job|StepId=|job) ?[0-9.]+`)

func runSbatch(t *testing.T, s *site, c cell) string {
	a := s.sbatch(t, c.fill(c.form.script), append(c.options(), "--output="+c.name()+".out")...)
	if a.status != 0 {
		return said(a.stderr)
	}
	s.ended(t, strings.TrimSpace(a.stdout))
	return said(s.read(t, c.name()+".out"))
}

func runSrun(t *testing.T, s *site, c cell) string {
	args := append([]string{"srun"}, c.options()...)
	if c.form.bind != "" {
		args = append(args, c.form.bind)
	}
	if c.form.direct == "" {
		return said(s.call(t, "", user, "", append(args, strings.Fields(c.command())...)...).stderr)
	}
	s.script(t, c.name(), c.fill(c.form.direct))
	return said(s.call(t, "", user, "", append(args, "./"+c.name())...).stderr)
}

// runSalloc runs a script with srun on the login node, as `salloc ... ./script` does. A script without srun runs in the
// shell that salloc without a command opens on the job's node.
func runSalloc(t *testing.T, s *site, c cell) string {
	s.script(t, c.name(), c.fill(c.form.script))
	args := append([]string{"salloc"}, c.options()...)
	if c.form.name == "no srun" {
		return said(s.call(t, "", user, "exec ./"+c.name()+"\n", args...).stderr)
	}
	return said(s.call(t, "", user, "", append(args, "./"+c.name())...).stderr)
}
