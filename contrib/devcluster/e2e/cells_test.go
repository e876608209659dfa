package e2e

import "strings"

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

// modeNames are the three submission commands.
var modeNames = []string{"sbatch", "srun", "salloc"}

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

// cells returns all cells, in the order of the page.
func cells() (all []cell) {
	for _, mode := range modeNames {
		for _, sp := range spellings {
			for _, f := range forms {
				all = append(all, cell{mode, sp, f})
			}
		}
	}
	return all
}
