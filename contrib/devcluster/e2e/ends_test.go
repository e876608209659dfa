//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

func number(t *testing.T, id string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(id, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// holding waits until the given number of runs of `task NAME` use their devices.
func (s *site) holding(t *testing.T, name string, many int) {
	t.Helper()
	within(t, "task "+name+" uses its device", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.home(), "tasks", name, "*.holds"))
		return len(files) == many
	})
}

// TestRequeue checks that the second run of a requeued job has a new lease, although both runs have the same job id,
// and that the first run's slice is free again.
func TestRequeue(t *testing.T) {
	s := quietly(t, shared)
	id := s.submit(
		t,
		"if [[ ${SLURM_RESTART_COUNT:-0} == 0 ]]; then ./task requeue 1 600; else srun ./task requeue; fi",
		"--gres=gpu:1",
		"-w",
		"n1",
	)
	s.holding(t, "requeue", 1)
	s.must(t, "", user, "scontrol", "requeue", id)
	s.until(t, id, "the job is in the queue again", func(r row) bool { return r.state == "PENDING" })
	within(t, "the first run has no lease", func() bool {
		status, err := s.status("n1")
		return err == nil && len(status.Leases) == 0
	})
	s.completed(t, id)
	all := s.held(t, "requeue", "1g.5gb") // the first run has written no record, because it was killed
	if len(all) == 1 && all[0].restart != "1" {
		t.Errorf("the restart count of the finished run is %s", all[0].restart)
	}
	restarts := []float64{}
	for line := range s.agentLog(t, "n1") {
		if job, _ := line["job"].(float64); job == number(t, id) && line["restart"] != nil {
			restarts = append(restarts, line["restart"].(float64))
		}
	}
	if len(restarts) != 2 || restarts[0] != 0 || restarts[1] != 1 {
		t.Errorf("the agent granted leases to the runs with restart counts %v", restarts)
	}
}

// TestHostileNames checks job names and comments that look like Slurm's output, because the agent parses squeue's
// output, in which both appear, and scontrol's if it cannot run caelum-show.
func TestHostileNames(t *testing.T) {
	s := quietly(t, shared)
	imitation := "x\n   JOB_GRES=gpu:a100:1,mig:7g.40gb:1\n     Nodes=n1 CPU_IDs=0 Mem=0 " +
		"GRES=gpu:a100:1(IDX:0),mig:7g.40gb:1\n   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0"
	for what, name := range map[string]string{
		"lines":       "x\nNodes=n9 GRES=mig:7g.40gb:4\nJobState=COMPLETED",
		"fields":      "x JobState=CANCELLED Nodes=n9 GRES=gpu:a100:7(IDX:0-6) TresPerNode=gres:mig:7g.40gb:1",
		"separators":  "a|b,c;d'e\"f\\g\t$(reboot)`reboot`%s%n\x1b[31m",
		"not ASCII":   "Jürgen 任务 \xff\xfe",
		"an option":   "--gres=mig:7g.40gb:1 -w n9",
		"very long":   strings.Repeat("Nodes=n9 ", 100),
		"marks":       "caelum:held caelum:key=0123456789abcdef",
		"SQL":         "'; DROP TABLE lease; --",
		"a directory": "../../../../run/caelum/jobs/1",
		"a section":   imitation,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			folder := "hostile-" + strings.ReplaceAll(what, " ", "-")
			id := s.submit(
				t,
				"srun ./task "+folder,
				"--job-name="+name,
				"--comment="+name,
				"--output="+folder+".out",
				"--gres=gpu:1",
			)
			s.completed(t, id)
			counts(t, s.held(t, folder, "1g.5gb"), "1")
		})
	}
}

func TestReservation(t *testing.T) {
	s := quietly(t, shared)
	s.must(
		t,
		"",
		"root",
		"scontrol",
		"create",
		"reservation",
		"ReservationName=course",
		"Users="+user,
		"StartTime=now",
		"Duration=10",
		"Nodes=n2",
	)
	t.Cleanup(func() { s.must(t, "", "root", "scontrol", "delete", "ReservationName=course") })
	id := s.submit(t, "srun ./task reservation", "--reservation=course", "--gres=gpu:1")
	large := s.submit(t, "srun ./task reservation-large", "--reservation=course", "--gres=mig:7g.40gb:1")
	outside := s.submit(t, "srun ./task reservation-outside", "--gres=gpu:1")
	s.completed(t, id, large, outside)
	for name, want := range map[string][2]string{"reservation": {"1g.5gb", "n2"},
		"reservation-large": {"7g.40gb", "n2"}, "reservation-outside": {"1g.5gb", "n1"}} {
		for _, one := range s.held(t, name, want[0]) {
			if one.node != want[1] {
				t.Errorf("task %s ran on %s, want %s", name, one.node, want[1])
			}
		}
	}
	s.tagged(t, id, "caelum:released")
}

// TestCancelledInProlog cancels a job after slurmctld has started it but before it has a lease. To make this possible,
// the cluster delays the prolog's request to the agent.
func TestCancelledInProlog(t *testing.T) {
	s := quietly(t, start(t, cluster.Options{Nodes: 1, GPUs: 1, PrologDelay: 3 * time.Second}))
	id := s.submit(t, "./task cancelled 1 600", "--gres=gpu:1")
	s.until(t, id, "slurmctld has started the job", func(r row) bool {
		return r.state == "RUNNING" || r.state == "CONFIGURING"
	})
	if status, err := s.status("n1"); err != nil || len(status.Leases) > 0 {
		t.Fatalf("the agent's status shows no job that waits for its prolog: %+v, %v", status, err)
	}
	s.must(t, "", user, "scancel", id)
	if state := s.ended(t, id); state != "CANCELLED" {
		t.Errorf("the cancelled job ended as %s", state)
	}
	if _, err := os.Stat(filepath.Join(s.home(), "tasks", "cancelled")); err == nil {
		t.Error("the cancelled job ran its task")
	}
	next := s.submit(t, "srun ./task after-cancelled", "--gres=gpu:1")
	s.completed(t, next)
	s.held(t, "after-cancelled", "7g.40gb")
}
