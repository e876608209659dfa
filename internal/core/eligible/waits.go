package eligible

import (
	"strings"

	"caelum/internal/slurm"
)

// WaitsForNodes reports whether the job is waiting only for nodes or GRES, according to the reason that slurmctld
// shows. It returns false for limits, holds, dependencies, begin times, licences and unknown reasons. The job becomes
// eligible at w.Job.Eligible.
//
// If no node offers a job's slices but catalogue nodes could run the job, the job's reason is "ReqNodeNotAvail, May be
// reserved for other job" (22.05.8 to 26.05.5), or begins with "Nodes required for job are DOWN, DRAINED". If real
// nodes are down, or the catalogue nodes are DOWN instead of FUTURE, the reason is "ReqNodeNotAvail,
// UnavailableNodes:...".
func WaitsForNodes(w slurm.Waiting) bool {
	if w.State != "PENDING" || w.Priority == 0 || w.Problem != "" || w.Dependency != "" {
		return false
	}
	switch w.Reason {
	case "None", "Resources", "Priority", "ReqNodeNotAvail":
		return true
	case "ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail,_Reserved_for_maintenance":
		return false
	}
	reason := strings.ReplaceAll(w.Reason, "_", " ")
	return strings.HasPrefix(reason, "ReqNodeNotAvail, ") ||
		strings.HasPrefix(reason, "Nodes required for job are DOWN, DRAINED") // REBOOTING can follow (24.11)
}
