package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// worker is the script that jobs run on each of their nodes. It starts a CUDA process on each of its slices, and
// records each process in ran.log.
const worker = `#!/bin/bash
# worker SECONDS
[[ -n ${CUDA_VISIBLE_DEVICES-} ]] || { echo "job $SLURM_JOB_ID sees no device"; exit 41; }
status=0
for uuid in ${CUDA_VISIBLE_DEVICES//,/ }; do
    CUDA_VISIBLE_DEVICES=$uuid cuda-process --exclusive --memory 100 --seconds "$1" &
    pids+=($!)
    echo "ran job=$SLURM_JOB_ID node=$SLURMD_NODENAME uuid=$uuid pid=$!" >>"$HOME/ran.log"
done
for pid in "${pids[@]}"; do wait "$pid" || { status=$?; echo "cuda-process on $SLURMD_NODENAME: $status"; }; done
exit $status
`

// profiles of the default GPU model.
var profiles = []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}

// jobKinds are the kinds of jobs, in the order in which a seed chooses among them. The probability of a kind is its
// weight divided by the sum of all weights.
var jobKinds = []struct {
	name   string
	weight int
	does   string
}{
	{"slice", 24, "one slice, asked for by its profile"},
	{"memory", 8, "--gres=gpu:1 with --mig-mem, and whole GPUs by --mig=off"},
	{"several", 10, "two slices on one node"},
	{"array", 8, "an array of two to five tasks, sometimes with a limit of tasks at a time"},
	{"nodes", 8, "one or two slices on each of two nodes"},
	{"het", 6, "a het job of two components"},
	{"srun", 8, "srun without a batch job, on one node or two"},
	{"named", 6, "a job that names its node, which Caelum holds until its slice is on offer"},
	{"exclusive", 3, "--exclusive"},
	{"depends", 6, "a job that waits for the end of another"},
	{"begin", 4, "--begin=now+N"},
	{"licence", 4, "one of two licences"},
	{"plain", 5, "a job without a GPU"},
	{"unlimited", 4, "a job without a time limit"},
}

// userKinds are the actions of users on their jobs besides the submission.
var userKinds = []struct {
	name, does string
}{
	{"hold", "a user holds a job, and releases it seconds later"},
	{"update", "a user changes time limit, name, comment or nice value of a job"},
	{"cancel", "a user cancels a job at any moment"},
	{"requeue", "a user requeues a running job in held state, and releases it after its credential has expired"},
}

// job is a submission. Its unique name identifies it in slurmctld and in sacct.
type job struct {
	name, kind, user string
	args             []string // the command that submits it
	interactive      bool
}

// draw makes the n-th submission of a user. earlier are ids of jobs that the user has submitted.
func draw(rng *rand.Rand, kinds []string, user string, n int, earlier []string) job {
	j := job{name: fmt.Sprintf("%s-%d", user, n), user: user, kind: drawKind(rng, kinds)}
	seconds := fmt.Sprintf("%.1f", 0.3+rng.ExpFloat64()*3)
	limit := fmt.Sprintf("--time=%d", 3+rng.IntN(5))
	p := profiles[rng.IntN(len(profiles))]
	small := profiles[rng.IntN(4)]
	run := "./worker " + seconds
	sbatch := func(options ...string) {
		j.args = append(
			[]string{"sbatch", "--parsable", "--requeue", "--open-mode=append", "--job-name=" + j.name, limit},
			options...)
	}
	wrap := func(options ...string) { sbatch(append(options, "--wrap", run)...) }
	// All numbers are drawn for every kind, so that excluding a kind does not change the other jobs.
	choice, count := rng.IntN(100), 2+rng.IntN(4)
	switch j.kind {
	case "memory":
		if choice < 20 {
			wrap("--gres=gpu:1", "--mig=off")
		} else {
			wrap("--gres=gpu:1", fmt.Sprintf("--mig-mem=%dG", 2+choice%16))
		}
	case "several":
		wrap("--gres=mig:" + small + ":2")
	case "array":
		at := ""
		if choice < 40 {
			at = "%2"
		}
		wrap(fmt.Sprintf("--array=1-%d%s", count, at), "--gres=mig:"+p+":1")
	case "nodes":
		run = "srun " + run
		profile := small
		if choice < 25 {
			profile = "7g.40gb"
		}
		wrap("-N2", "--ntasks-per-node=1", fmt.Sprintf("--gres=mig:%s:%d", profile, 1+choice%2))
	case "het":
		j.args = []string{
			"sbatch",
			"--parsable",
			"--requeue",
			"--open-mode=append",
			"--job-name=" + j.name,
			limit,
			"--gres=mig:" + p + ":1",
			":",
			"--job-name=" + j.name,
			"--gres=mig:" + small + ":1",
			"--wrap",
			run,
		}
	case "srun":
		j.interactive = true
		j.args = []string{
			"srun",
			"--job-name=" + j.name,
			limit,
			"--gres=gpu:1,mig:" + small + ":1",
			fmt.Sprint("-N", 1+choice%2),
			fmt.Sprint("-n", 1+choice%2),
			"./worker",
			seconds,
		}
	case "named":
		wrap(fmt.Sprint("--nodelist=n", 1+choice%2), "--gres=mig:"+p+":1")
	case "exclusive":
		wrap("--exclusive", "--gres=mig:"+small+":1")
	case "depends":
		options := []string{"--gres=mig:" + p + ":1"}
		if len(earlier) > 0 {
			options = append(options, "--dependency=afterany:"+earlier[max(0, len(earlier)-1-choice%5)])
		}
		wrap(options...)
	case "begin":
		wrap(fmt.Sprintf("--begin=now+%d", 3+choice%10), "--gres=mig:"+p+":1")
	case "licence":
		wrap("--licenses=chaos:1", "--gres=mig:"+p+":1")
	case "plain":
		run = "sleep " + seconds
		wrap()
	case "unlimited":
		limit = "--time=UNLIMITED"
		wrap("--gres=mig:" + p + ":1")
	default:
		wrap("--gres=mig:" + p + ":1")
	}
	return j
}

// drawKind chooses a kind of job by its weight. An excluded kind is replaced with a plain slice.
func drawKind(rng *rand.Rand, kinds []string) string {
	sum := 0
	for _, k := range jobKinds {
		sum += k.weight
	}
	at := rng.IntN(sum)
	for _, k := range jobKinds {
		if at -= k.weight; at < 0 {
			if contains(kinds, k.name) {
				return k.name
			}
			return "slice"
		}
	}
	return "slice"
}

func contains(list []string, name string) bool {
	return strings.Contains(" "+strings.Join(list, " ")+" ", " "+name+" ")
}
