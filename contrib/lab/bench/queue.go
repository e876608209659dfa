package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// fillQueue submits an array of 100,000 tasks and 9,999 held jobs with a GPU, each of which has a name, a comment and a
// dependency of about 1,000, 1,000 and 8,000 characters. It prints the last job's number.
const fillQueue = `
	first=$(sbatch --parsable --hold -o /dev/null -a 1-100000 --gres=gpu:1 --wrap true)
	on=$(seq -f "$first"_%g -s : 1 900)
	name=$(head -c 1000 /dev/zero | tr '\0' j)
	for i in $(seq 9999); do
		last=$(sbatch --parsable --hold -o /dev/null -d "afterany:$on" -J "$name" --comment "$name" --gres=gpu:1 \
			--wrap true)
	done
	echo "$last"`

// benchQueue measures the CPU time and the memory that each command of Caelum needs while slurmctld has the given
// number of nodes with eight GPUs and a queue that one user has filled, and the memory of the daemons. Only the first
// two nodes are running.
func benchQueue(ctx context.Context, nodes int) (err error) {
	const config = "learn: true\npoll_interval: 15s\n"
	c, down, err := upWithRecords(ctx, config, nodes, "MaxJobCount=120000", "MaxArraySize=100001", "MessageTimeout=100")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	do := doer(ctx, c, &err)
	last := do("bash", "-e", "-c", fillQueue)
	time.Sleep(time.Minute)
	fmt.Printf("\nwith %d nodes of 8 GPUs, an array of 100,000 tasks and 9,999 jobs that depend on it:\n", nodes)
	for _, args := range [][]string{
		{"status", "--all"}, {"explain", last}, {"report", last}, {"usage"}, {"predict", last},
		{"doctor", "--controller"},
	} {
		cmd := c.Command(ctx, "ctl", "root", append([]string{"caelum"}, args...)...)
		out, failure := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			return failure
		}
		used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			return errors.New("this system does not report what a process used")
		}
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		fmt.Printf("  caelum %-22q %6.2f s of CPU time, %4d MB, %s\n", args, cpu.Seconds(), used.Maxrss>>10,
			cmd.ProcessState)
		fmt.Fprintf(os.Stderr, "%.600s\n", out)
	}
	for _, unit := range []string{"agent-n1", "watcher"} {
		fmt.Printf("  %s: %s\n", unit, do("sh", "-c", `awk '/^VmHWM|^VmRSS/ {printf "%s %d MB ", $1, $2 / 1024}' `+
			`/proc/$(cat /run/devcluster/units/`+unit+`.pid)/status`))
	}
	return err
}
