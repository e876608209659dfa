//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

var build = flag.String("build", "", "directory with the binaries (default: build/ in the repository)")

// shared is the cluster for all tests that need no special slurm.conf.
var shared *site

// parallel is the number of subtests that run at the same time. It is high because they wait for Slurm rather than for
// the CPU.
const parallel = "16"

// conf lists additional lines for slurm.conf.
var conf = []string{
	"AccountingStorageEnforce=limits",
	// With and without Caelum, a pending het job blocks all later jobs until the next backfill cycle. Backfill's
	// default interval is 30 s.
	"SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min,bf_interval=1",
	// slurmctld starts a requeued job one second after cred_expire (default: 120 s) at the earliest. The tests must not
	// shorten this wait with `scontrol update StartTime=now`: before the first run's credential expires, slurmd runs no
	// prolog for the next run (slurm_cred_jobid_cached in slurm_cred.c, 22.05.8), and without a prolog, a job has no
	// lease.
	"AuthInfo=cred_expire=" + credExpire,
	// salloc's shell runs on the job's node.
	"LaunchParameters=use_interactive_step",
	`InteractiveStepOptions="--interactive --preserve-env $SHELL"`,
	"PartitionName=billed Nodes=n[1-2],mig-catalog[1-2] TRESBillingWeights=" + billingWeights,
}

const credExpire = "5"

// billingWeights holds weights that make a partition bill slices by size.
const billingWeights = "GRES/mig:1g.5gb=5,GRES/mig:2g.10gb=20"

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", parallel)
	os.Exit(run(m))
}

func run(m *testing.M) (status int) {
	var err error
	if shared, err = newSite(context.Background(), cluster.Options{Nodes: 2, GPUs: 2, Conf: conf,
		KeepDeviceFiles: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}()
	if err := shared.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
