package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// ReportMemory implements api.Reporter. It accepts a report only if the connected user is the job's user and the
// connected process belongs to the job. If Slurm does not put jobs' processes into cgroups, only the user is checked.
// Other users receive the same error as for a job without a lease.
func (a *Agent) ReportMemory(ctx context.Context, job uint32, pid int, r api.MemoryReport) error {
	uid := api.Peer(ctx)
	a.node.Lock()
	lease := a.node.Leases[job]
	a.node.Unlock()
	if lease == nil || lease.UID != uid || len(lease.Slices) == 0 {
		return api.NoLease(job)
	}
	cgroups, err := a.procs.Cgroups(pid)
	if err != nil {
		return &api.Error{Code: http.StatusForbidden, Message: "couldn't read the cgroup of the reporting process"}
	}
	own := gpu.Process{UIDs: [4]uint32{uid, uid, uid, uid}}
	if why := strangeness(own, cgroups, job, uid, a.jobCgroups()); why != "" {
		return &api.Error{
			Code:    http.StatusForbidden,
			Message: fmt.Sprintf("only processes of job %d may report its memory; this process is %s", job, why),
		}
	}
	for _, s := range lease.Slices {
		if r.UUID == gpu.DeviceUUID(s.UUID) || r.UUID == "" && len(lease.Slices) == 1 {
			r.UUID = s.UUID
		}
	}
	if !slices.ContainsFunc(lease.Slices, func(s api.Slice) bool { return s.UUID == r.UUID }) {
		return &api.Error{
			Code:    http.StatusBadRequest,
			Message: fmt.Sprintf("couldn't store the report: job %d has no slice with this UUID on this node", job),
		}
	}
	if !a.usage.Report(job, pid, r) {
		return &api.Error{
			Code: http.StatusTooManyRequests,
			Message: "couldn't store the report: at most 64 processes of a job may report, each at most once per " +
				"second",
		}
	}
	return nil
}
