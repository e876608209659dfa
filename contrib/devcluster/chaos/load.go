package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"caelum/internal/core/mig"
)

// worker is the script that each job runs on each of its nodes. It starts a CUDA process on each of the job's slices
// and records the processes in ran.log.
const worker = `#!/bin/bash
# worker SECONDS [CURVE [shared]]
[[ -n ${CUDA_VISIBLE_DEVICES-} ]] || { echo "job $SLURM_JOB_ID sees no device"; exit 41; }
status=0
for uuid in ${CUDA_VISIBLE_DEVICES//,/ }; do
    use=(--memory 100 --seconds "$1")
    [[ -z ${2-} ]] || use=(--curve "$2")
    [[ ${3-} == shared ]] || use+=(--exclusive)
    CUDA_VISIBLE_DEVICES=$uuid cuda-process "${use[@]}" &
    pids+=($!)
    echo "ran job=$SLURM_JOB_ID node=$SLURMD_NODENAME uuid=$uuid pid=$!" >>"$HOME/ran.log"
done
for pid in "${pids[@]}"; do wait "$pid" || { status=$?; echo "cuda-process on $SLURMD_NODENAME: $status"; }; done
exit $status
`

// profiles lists the plain profiles of the GPU model, from smallest to largest. The command line can select a different
// model.
var profiles, _ = profilesOf("A100-40GB")

// profilesOf returns the plain profiles of the first GPU model in a list of models.
func profilesOf(models string) (names []string, err error) {
	model, _, _ := strings.Cut(models, ",")
	b, err := mig.ModelByName(model)
	if err != nil {
		return nil, err
	}
	for _, p := range b.Profiles {
		if mig.Plain(p) {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// jobKind is a kind of job.
type jobKind struct {
	name   string
	weight int
	does   string
}

// jobKinds lists the kinds of jobs. Do not reorder the kinds: the order determines which jobs are generated from a
// given seed. The probability of a kind is its weight divided by the sum of all weights.
var jobKinds = []jobKind{
	{"slice", 24, "one slice, requested by profile"},
	{"memory", 8, "--gres=gpu:1 with --mig-mem, or with --mig=off for a whole GPU"},
	{"several", 10, "two slices on one node"},
	{"array", 8, "an array of two to five tasks, sometimes with a limit on simultaneous tasks"},
	{"nodes", 8, "one or two slices on each of two nodes"},
	{"het", 6, "a het job with two components"},
	{"srun", 8, "srun without a batch job, on one or two nodes"},
	{"named", 6, "a job that requests a node by name; Caelum holds it until the agent offers its slice"},
	{"exclusive", 3, "--exclusive"},
	{"depends", 6, "a job that waits for another job to end"},
	{"begin", 4, "--begin=now+N"},
	{"licence", 4, "a job that needs one of two licences"},
	{"plain", 5, "a job without GPUs"},
	{"unlimited", 4, "a job without a time limit"},
}

// featureKinds lists the kinds of jobs that are added by -features.
var featureKinds = []jobKind{
	{"full", 20, "an unchanged script with two GPUs, which gets full GPUs, or --mig=off"},
	{"urgent", 8, "one slice, in a partition whose jobs preempt others"},
	{"grows", 8, "a job that needs more memory than its first slice has"},
}

// userKinds lists the actions that users take on jobs that they have submitted.
var userKinds = []struct {
	name, does string
}{
	{"hold", "a user holds a job and releases it a few seconds later"},
	{"update", "a user changes the time limit, name, comment or nice value of a job"},
	{"cancel", "a user cancels a job at a random time"},
	{"requeue", "a user requeues and holds a running job, and releases it after its credential has expired"},
}

// job is a submission, identified in slurmctld and sacct by its unique job name.
type job struct {
	name, kind, user string
	args             []string // the command that submits the job
	interactive      bool
}

// draw returns the n-th submission of a user. The argument earlier lists the ids of the jobs that the user has already
// submitted.
func draw(rng *rand.Rand, kinds []string, user string, n int, earlier []string) job {
	j := job{name: fmt.Sprintf("%s-%d", user, n), user: user, kind: drawKind(rng, kinds)}
	d := drawVariant(rng)
	if j.kind == "unlimited" {
		d.limit = "--time=UNLIMITED"
	}
	name := "--job-name=" + j.name
	sbatch := []string{"sbatch", "--parsable", "--requeue", "--open-mode=append", name, d.limit}
	switch j.kind {
	case "het":
		j.args = append(sbatch, gres(d.profile, 1), ":", name, gres(d.small, 1), "--wrap", "./worker "+d.seconds)
	case "srun":
		j.interactive = true
		j.args = []string{
			"srun", name, d.limit, "--gres=gpu:1,mig:" + d.small + ":1",
			fmt.Sprint("-N", 1+d.choice%2), fmt.Sprint("-n", 1+d.choice%2), "./worker", d.seconds,
		}
	default:
		options, run := d.batch(j.kind, earlier)
		j.args = append(append(sbatch, options...), "--wrap", run)
	}
	return j
}

// variant holds the random properties of a submission, except for its kind: the run time in seconds, the time limit
// option, a profile of any size, a small profile, and two numbers that determine the options of the kind.
type variant struct {
	seconds, limit string
	profile, small string
	choice, count  int
}

// drawVariant draws all of the random numbers for every kind, so that excluding a kind does not change the other jobs.
func drawVariant(rng *rand.Rand) (v variant) {
	v.seconds = fmt.Sprintf("%.1f", 0.3+rng.ExpFloat64()*3)
	v.limit = fmt.Sprintf("--time=%d", 3+rng.IntN(5))
	v.profile = profiles[rng.IntN(len(profiles))]
	v.small = profiles[rng.IntN(min(4, len(profiles)))]
	v.choice, v.count = rng.IntN(100), 2+rng.IntN(4)
	return v
}

func gres(profile string, n int) string { return fmt.Sprintf("--gres=mig:%s:%d", profile, n) }

// batch returns the options of a batch job of the given kind, and the command that it runs.
func (v variant) batch(kind string, earlier []string) (options []string, run string) {
	run = "./worker " + v.seconds
	slice := gres(v.profile, 1)
	switch kind {
	case "memory":
		if v.choice < 20 {
			return []string{"--gres=gpu:1", "--mig=off"}, run
		}
		return []string{"--gres=gpu:1", fmt.Sprintf("--mig-mem=%dG", 2+v.choice%16)}, run
	case "full":
		if v.choice < 30 {
			return []string{"--gres=gpu:1", "--mig=off"}, run
		}
		return []string{"--gres=gpu:2"}, run
	case "fraction":
		return v.fraction(run)
	case "urgent":
		return []string{"--partition=high", fmt.Sprintf("--gres=gpu:1,mig:%s:1", v.profile)}, run
	case "grows":
		return []string{"--gres=gpu:1", "--mig-mem=4G", "--mig-grow=oom"}, run + " 0:3000,1:9000,3:9900,4:15000,5:15000"
	case "several":
		return []string{gres(v.small, 2)}, run
	case "array":
		tasks := fmt.Sprintf("--array=1-%d", v.count)
		if v.choice < 40 {
			tasks += "%2"
		}
		return []string{tasks, slice}, run
	case "nodes":
		profile := v.small
		if v.choice < 25 {
			profile = profiles[len(profiles)-1]
		}
		return []string{"-N2", "--ntasks-per-node=1", gres(profile, 1+v.choice%2)}, "srun " + run
	case "named":
		return []string{fmt.Sprint("--nodelist=n", 1+v.choice%2), slice}, run
	case "exclusive":
		return []string{"--exclusive", gres(v.small, 1)}, run
	case "depends":
		if len(earlier) == 0 {
			return []string{slice}, run
		}
		return []string{slice, "--dependency=afterany:" + earlier[max(0, len(earlier)-1-v.choice%5)]}, run
	case "begin":
		return []string{fmt.Sprintf("--begin=now+%d", 3+v.choice%10), slice}, run
	case "licence":
		return []string{"--licenses=chaos:1", slice}, run
	case "plain":
		return nil, "sleep " + v.seconds
	default:
		return []string{slice}, run
	}
}

// drawKind chooses a kind of job at random, according to the weights. If the chosen kind is excluded, drawKind returns
// "slice".
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
