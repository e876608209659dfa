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

// submit holds the function that submits a cell's job, for each of modeNames.
var submit = map[string]func(t *testing.T, s *site, c cell) string{
	"sbatch": runSbatch, "srun": runSrun, "salloc": runSalloc,
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
	for _, c := range cells() {
		t.Run(c.mode+"/"+c.spelling.name+"/"+c.form.name, func(t *testing.T) {
			t.Parallel()
			var want, got outcome
			var both sync.WaitGroup
			both.Go(func() { want = stock.outcome(t, c, submit[c.mode]) })
			both.Go(func() { got = s.outcome(t, c, submit[c.mode]) })
			both.Wait()
			if !t.Failed() {
				compare(t, c, want, got)
			}
			report.note(c, want, got, t.Failed())
		})
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
