//go:build e2e

package e2eoracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"caelum/internal/core/predict"
)

const user, uid = "user1", 20001

// profilesA100 and profilesH100 list the plain profiles of A100-40GB and H100-80GB.
var (
	profilesA100 = []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	profilesH100 = []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
)

// requeueSeconds is how long a requeued job is held, and credSeconds is the lifetime of a credential. slurmd 22.05.8
// purges expired credentials at most every two seconds, and may skip the prolog of a job that restarts in the first
// second after its first run's credential has expired. On a busy node, 4 of 6 requeued jobs started without a prolog,
// and failed without a lease file. requeueSeconds is longer than a 4 s prolog plus credSeconds, so no job starts in
// that second.
const requeueSeconds, credSeconds = 24, 15

// worker is the script that runs on every node of every job. It prints the permissions on the GPUs' device files, and
// starts a CUDA process on each of the job's slices.
const worker = `#!/bin/bash
# worker SECONDS
status=0
for f in /dev/nvidia[0-9]*; do
    echo "file job=$SLURM_JOB_ID node=$SLURMD_NODENAME at=$(date +%s%N) gpu=${f#/dev/nvidia}" \
        "$(stat -c 'owner=%u mode=%a' "$f") user=$UID"
done
[[ -n ${CUDA_VISIBLE_DEVICES-} ]] || { echo "job $SLURM_JOB_ID sees no device"; exit 1; }
for uuid in ${CUDA_VISIBLE_DEVICES//,/ }; do
    echo "ran job=$SLURM_JOB_ID node=$SLURMD_NODENAME uuid=$uuid"
    CUDA_VISIBLE_DEVICES=$uuid cuda-process --exclusive --memory 100 --seconds "$1" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
`

// load is a shell script that submits jobs on the login node, as users do.
type load struct {
	script strings.Builder
	rng    *rand.Rand
	// jobs is the number of submitted jobs. Some jobs may never start, because the load cancels pending jobs.
	jobs int
	// keys lists the lines of the decision table.
	keys     []string
	profiles []string
	kinds
}

// kinds selects the kinds of jobs.
type kinds struct {
	// unlike is true if some profiles do not exist on all nodes, in which case fewer jobs request a particular profile.
	unlike bool
	// batch is true if the load must not use srun, salloc or requeues. A restarted slurmctld 22.05.8 may not detect
	// that an allocation ended while slurmctld was stopped. slurmctld may also permanently reject changes to a requeued
	// job ("the DB index is being set").
	batch bool
	// full is true if some jobs need full GPUs. All nodes have H100-80GB.
	full bool
}

// mix returns a load of at least n jobs. The load submits the jobs over the given number of seconds.
func mix(seed uint64, n int, seconds float64, k kinds) *load {
	l := &load{rng: rand.New(rand.NewPCG(seed, 1)), kinds: k, profiles: profilesA100}
	if k.full {
		l.profiles = profilesH100
	}
	l.script.WriteString("cd; exec 2>>load.err\n")
	for i, p := range l.profiles {
		line := fmt.Sprintf("key %d:%s %s", uid, predict.Key(predict.KeyInput{
			UID: uid, Account: "research", JobName: "known-" + p, Script: known(p), GPUs: 1, Nodes: 1}), p)
		if i%2 == 0 { // with a run time and a busy share, agents may also hold the job for a larger slice
			line += " 25 90"
		}
		l.keys = append(l.keys, line)
	}
	for l.jobs < n {
		before := l.jobs
		l.one(before < n/2)
		fmt.Fprintf(&l.script, "sleep %.2f\n", seconds/float64(n)*float64(l.jobs-before)*2*l.rng.Float64())
	}
	if k.unlike { // more simultaneous jobs than fit on the first GPU model
		l.jobs += 12
		l.line("sbatch --parsable --array=1-12 --job-name=known-2g.10gb known-2g.10gb")
	}
	l.script.WriteString("wait\n")
	return l
}

// known returns a script that has a line with the profile in the decision table, and whose only option is --gres=gpu:1.
func known(profile string) string {
	return fmt.Sprintf("#!/bin/bash\n#SBATCH --gres=gpu:1\n# uses a %s\n./worker 1\n", profile)
}

// fullRequests lists requests for one to three full GPUs.
var fullRequests = []string{
	"--gres=gpu:1 --mig=off", "--gres=gpu:2", "--gpus-per-task=1 -n2 -N1", "--gres=gpu:3", "--gres=gpu:h100:2",
}

// one adds a submission. All profiles have the same probability, so the large ones use most of the units, and the small
// ones must use the gaps. Only early jobs are requeued, because a requeue takes a long time.
func (l *load) one(early bool) {
	p := l.profiles[l.rng.IntN(len(l.profiles))]
	seconds := 0.3 + 2.5*l.rng.Float64()
	sbatch := func(options string) string {
		return fmt.Sprintf("sbatch --parsable --requeue --open-mode=append %s --wrap './worker %.1f'", options, seconds)
	}
	l.jobs++
	both := l.rng.IntN(4)
	if l.unlike {
		both = slices.Index(l.profiles, "1g.10gb") // the only common profile of A100-40GB and H100-80GB
	}
	if l.full && l.rng.IntN(4) == 0 {
		l.line("%s", sbatch(fullRequests[l.rng.IntN(len(fullRequests))]))
		return
	}
	switch kind := l.rng.IntN(100); {
	case l.unlike && kind < 60, kind >= 30 && kind < 42: // a profile from the decision table
		l.line("sbatch --parsable --requeue --open-mode=append --job-name=known-%s%s known-%s", p,
			[]string{"", "", " --array=1-2"}[kind%3], p)
		l.jobs += []int{0, 0, 1}[kind%3]
	case kind < 30:
		l.line("%s", sbatch("--gres=mig:"+p+":1"))
	case kind < 52: // a job with two slices
		l.line("%s", sbatch("--gres=mig:"+l.profiles[l.rng.IntN(4)]+":2"))
	case kind < 60:
		n := 2 + l.rng.IntN(3)
		l.jobs += n - 1
		l.line("%s", sbatch(fmt.Sprintf("--array=1-%d --gres=mig:%s:1", n, p)))
	case kind < 66 && !l.batch:
		l.line("srun --gres=gpu:1,mig:%s:1 ./worker %.1f >srun-%d.out &", p, seconds, l.jobs)
	case kind < 72 && !l.batch:
		l.line("salloc --gres=mig:%s:1 srun ./worker %.1f >salloc-%d.out &", p, seconds, l.jobs)
	case kind < 76 && !l.batch: // a job on both nodes at the same time
		l.line("srun -N2 -n2 --gres=gpu:1,mig:%s:1 ./worker %.1f >srun-%d.out &", l.profiles[both], seconds, l.jobs)
	case kind < 88 || !early || l.batch: // a job that the load cancels: pending, in its prolog, or running
		l.line(
			"id=$(%s); echo $id >>cancelled; (sleep %.1f; scancel $id) &",
			sbatch("--gres=mig:"+p+":1"),
			4*l.rng.Float64(),
		)
	default: // a running job that the load requeues; the release is repeated, because slurmctld may be stopped
		l.line(
			"id=$(%s); (sleep %.1f; scontrol requeuehold $id && sleep %d && "+
				"until scontrol release $id; do sleep 1; done) &",
			sbatch("--gres=mig:"+p+":1"),
			1+3*l.rng.Float64(),
			requeueSeconds,
		)
	}
}

func (l *load) line(format string, args ...any) {
	fmt.Fprintf(&l.script, format+"\n", args...)
}
