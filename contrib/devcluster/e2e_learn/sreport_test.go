//go:build e2e

package e2elearn

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// rollUp is a Python program that makes slurmdbd roll up the next hour, and prints the start and the end of that hour.
// slurmdbd evaluates an hour that has not begun as if no job and no node changed its state until the end of the hour.
// Slurm has no command for this request (slurmdb_usage_roll in slurmdb.h).
const rollUp = `
import ctypes, glob, time
slurm = ctypes.CDLL(glob.glob("/usr/lib/*/libslurm.so.*")[0], ctypes.RTLD_GLOBAL) # Slurm's plugins use its symbols
slurm.slurmdb_connection_get.restype = ctypes.c_void_p
slurm.slurm_init(None)
db = slurm.slurmdb_connection_get(ctypes.byref(ctypes.c_uint16(0)))
start = (int(time.time()) // 3600 + 1) * 3600
status = slurm.slurmdb_usage_roll(ctypes.c_void_p(db), ctypes.c_long(start), ctypes.c_long(start + 3600),
                                  ctypes.c_uint16(0), ctypes.byref(ctypes.c_void_p()))
assert status == 0, status
for at in start, start + 3600:
    print(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)))
`

// TestSreport checks that sreport counts the catalogue nodes as planned down instead of down. slurmctld nevertheless
// accepts jobs whose slices only the catalogue nodes have.
func TestSreport(t *testing.T) {
	s := start(t, "poll_interval: 1s\n", cluster.Options{Nodes: 1, GPUs: 1})
	running := s.submit("-o", "/dev/null", "--gres=gpu:1", "--mig=7g.40gb", "--wrap=sleep 3600")
	s.until("RUNNING", "squeue", "-h", "-j", running, "-o", "%T")
	s.until("1", "sh", "-c", "scontrol -o show node n1 | grep -c mig:3g.20gb:0")
	waiting := s.submit("-o", "/dev/null", "--gres=gpu:1", "--mig=3g.20gb", "--wrap=sleep 3600")
	if names := s.must("user1", "sinfo", "-h", "-N", "-o", "%N"); strings.Contains(names, "mig-catalog") {
		t.Errorf("sinfo shows the catalogue: %s", names)
	}

	// The catalogue node and n1 have 64 CPUs each. The job uses one CPU and one 7g.40gb.
	const minutes = 64 * 60
	want := utilization{"cpu": {60, 0, minutes, 2 * minutes}, "gres/mig:7g.40gb": {60, 0, 0, 60}}
	s.utilized(want)
	s.must("root", "scontrol", "update", "nodename=mig-catalog1", "state=down", "reason=test")
	s.utilized(utilization{"cpu": {60, minutes, 0, 2 * minutes}, "gres/mig:7g.40gb": {60, 0, 0, 60}})
	// slurmdbd ignores the state of a node's second event in one second (as_mysql_node_down in as_mysql_cluster.c).
	time.Sleep(time.Second)
	s.must("root", "scontrol", "update", "nodename=mig-catalog1", "state=future") // the remedy of caelum doctor
	s.utilized(want)
	s.until("PENDING", "squeue", "-h", "-j", waiting, "-o", "%T")
}

// utilization holds sreport's minutes for each TRES: allocated, down, planned down, and reported in total.
type utilization map[string][4]int

// utilized waits until slurmdbd has received the events of the nodes and jobs and sreport shows the minutes.
func (s site) utilized(want utilization) {
	s.Helper()
	var got utilization
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		hour := strings.Fields(s.must("root", "python3", "-c", rollUp))
		out := s.must("root", "sreport", "-n", "-P", "-t", "minutes", "-T", "cpu,gres/mig:7g.40gb", "cluster",
			"utilization", "start="+hour[0], "end="+hour[1], "format=TresName,Allocated,Down,PlannedDown,Reported")
		got = utilization{}
		for line := range strings.Lines(out) {
			f := strings.Split(strings.TrimSpace(line), "|")
			var row [4]int
			for i := range row {
				var err error
				if row[i], err = strconv.Atoi(f[i+1]); err != nil {
					s.Fatal(line, err)
				}
			}
			got[f[0]] = row
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	s.Errorf("sreport shows %v instead of %v", got, want)
}
