package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// The agent never changes foreign instances, and if the ledger is lost, the agent's own idle instances also become
// foreign. Only an administrator can know that no other program uses such an instance, so only root can return it to
// the agent with `caelum adopt`. The agent adopts an instance only if no job can be using it: every job with GPUs on
// the node has a lease, no process is using the instance, and no process has its capability files open after the agent
// has restricted them to root.

// Adopt implements api.Adopter. It converts the foreign instances whose UUIDs are in the request, or all foreign
// instances if the request contains no UUIDs, to idle instances of the agent. It destroys GPU instances without compute
// instances, which have no UUID. For each instance that was not adopted, the result contains an entry with the reason.
func (a *Agent) Adopt(ctx context.Context, req api.AdoptRequest) ([]api.Adoption, error) {
	if err := a.allJobsLeased(ctx); err != nil {
		return nil, &api.Error{Code: http.StatusConflict, Message: "couldn't adopt: " + err.Error()}
	}
	if err := a.compareGPUs(); err != nil {
		a.log.WithError(err).Warn("couldn't compare every GPU with the ledger before adopting instances")
	}
	var all []api.Adoption
	for g, c := range a.node.Cards {
		a.node.Lock()
		foreign := slices.Clone(c.Foreign)
		usable := c.Problem == ""
		a.node.Unlock()
		for _, f := range foreign {
			if !usable || len(req.UUIDs) > 0 && !slices.Contains(req.UUIDs, f.UUID) {
				continue
			}
			adopt, state := a.adoptForeign, api.StateIdle
			if len(f.CIs) == 0 && f.GI != gpu.FullGI {
				adopt, state = a.removeForeign, ""
			}
			reason, err := adopt(g, c, f)
			if err != nil {
				return all, err
			}
			at := api.Placement{Profile: f.Profile, Start: f.Start, Size: f.Size}
			if reason != "" {
				state = api.StateForeign
			}
			all = append(
				all,
				api.Adoption{
					GPU:      c.Index,
					Instance: api.Instance{Placement: at, GI: f.GI, UUID: f.UUID, State: state},
					Reason:   reason,
				},
			)
		}
	}
	for _, uuid := range req.UUIDs {
		if !slices.ContainsFunc(all, func(d api.Adoption) bool { return d.UUID == uuid }) {
			all = append(
				all,
				api.Adoption{
					GPU:      -1,
					Instance: api.Instance{UUID: uuid},
					Reason:   "this node has no foreign instance with this UUID",
				},
			)
		}
	}
	a.publisher.Soon()
	return all, nil
}

// mayHoldSlices reports whether a job has GPUs or slices. If its request cannot be parsed, its allocation counts.
func (a *Agent) mayHoldSlices(ctx context.Context, j slurm.Job) bool {
	if j.Problem == "" || state.AsksForSlices(j) {
		return state.AsksForSlices(j)
	}
	job, err := a.ctl.Job(ctx, j.ID)
	on := job.Allocated[a.cfg.Node]
	return err != nil || job.Allocated == nil || on.Total("gpu")+on.Total("mig") > 0
}

// allJobsLeased returns an error if a job without a lease may be using an instance. This is the case if slurmctld lists
// a job with GPUs on this node that has no lease, or if there is a lease file without a lease.
func (a *Agent) allJobsLeased(ctx context.Context) error {
	jobs, err := a.ctl.Jobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range slurm.On(jobs, a.cfg.Node) {
		if a.leaseOf(j.ID) == nil && a.mayHoldSlices(ctx, j) {
			return fmt.Errorf("job %d is on this node but has no lease; try again when the job has ended", j.ID)
		}
	}
	files, err := os.ReadDir(filepath.Join(a.cfg.RunDir, "jobs"))
	if err != nil {
		return err
	}
	for _, f := range files {
		id, err := strconv.ParseUint(f.Name(), 10, 32)
		if err == nil && a.leaseOf(uint32(id)) == nil {
			return fmt.Errorf(
				"the lease file %s does not belong to any lease; if job %d is not running on this node, remove the "+
					"file",
				a.leaseFile(uint32(id)),
				id,
			)
		}
	}
	return nil
}

// leaseOf returns a job's lease, or nil if the job does not have one.
func (a *Agent) leaseOf(job uint32) *api.Lease {
	a.node.Lock()
	defer a.node.Unlock()
	return a.node.Leases[job]
}

// adoptForeign converts a foreign instance to an idle instance of the agent, or returns the reason why it cannot do so.
func (a *Agent) adoptForeign(g int, c *state.Card, f gpu.Instance) (reason string, err error) {
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	p, ok := c.Model.Placement(f.Profile, f.Start)
	switch {
	case !ok:
		return "the GPU model has no placement for the instance", nil
	case !f.Whole || f.UUID == "":
		return "the compute instance does not span the GPU instance", nil
	}
	in := c.NewInstance(p, f)
	if reason := a.whyInUse(placed{g, in}); reason != "" {
		return reason, nil
	}
	if err := a.caps.Make(c.Minor, f); err != nil {
		return err.Error(), nil
	}
	if reason := a.whyInUse(placed{g, in}); reason != "" { // a process opened the files before caps.Make
		return reason, nil
	}
	if exists, err := a.hw.Exists(g, f); err != nil || !exists {
		return "the instance was removed", err
	}
	a.node.Lock()
	taken := c.Ours[p] != nil || !contains(c.Foreign, f)
	a.node.Unlock()
	if taken {
		return "the instance is no longer foreign", nil
	}
	intent, err := a.ledger.Begin(
		ledger.Intent{Op: ledger.OpCreate, GPU: c.UUID, Profile: f.Profile, Start: f.Start, Size: f.Size},
	)
	if err != nil {
		return "", err
	}
	if err := a.ledger.Created(intent, in.Instance); err != nil {
		return "", err
	}
	a.node.Lock()
	defer a.node.Unlock()
	c.Ours[p] = in
	c.Foreign = slices.DeleteFunc(slices.Clone(c.Foreign), func(other gpu.Instance) bool { return other.GI == f.GI })
	a.node.Version++
	a.remakeSoon()
	a.log.WithField("gpu", g).WithField("uuid", f.UUID).Warnf("adopted %s at %d", f.Profile, f.Start)
	return "", nil
}

// removeForeign destroys a foreign GPU instance without compute instances, or returns the reason why it cannot do so.
// The agent itself leaves such an instance if the ledger is lost while it re-creates a compute instance. No process can
// compute on such a GPU instance.
func (a *Agent) removeForeign(g int, c *state.Card, f gpu.Instance) (reason string, err error) {
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	if now, err := a.hw.Instances(g); err != nil {
		return "", err
	} else if !slices.ContainsFunc(now, func(x gpu.Instance) bool { return x.GI == f.GI && len(x.CIs) == 0 }) {
		return "the instance was removed or now has a compute instance", nil
	}
	intent, err := a.ledger.Begin(ledger.Intent{
		Op: ledger.OpDestroy, GPU: c.UUID, GI: f.GI, Profile: f.Profile, Start: f.Start, Size: f.Size,
	})
	if err != nil {
		return "", err
	}
	if err := a.discard(g, f); err != nil {
		return "couldn't destroy the instance, which has no compute instance: " + err.Error(), a.ledger.Failed(intent)
	}
	if err := a.ledger.Destroyed(intent, c.UUID, f.GI); err != nil {
		return "", err
	}
	a.node.Lock()
	defer a.node.Unlock()
	c.Foreign = slices.DeleteFunc(slices.Clone(c.Foreign), func(other gpu.Instance) bool { return other.GI == f.GI })
	a.node.Version++
	a.log.WithField("gpu", g).Warnf("destroyed %s at %d, which had no compute instance", f.Profile, f.Start)
	return "", nil
}

// whyInUse returns the reason why an instance is not idle, or an empty string if it is idle. An instance is in use if
// processes are using it or have its capability files open, or if the agent cannot list these processes.
func (a *Agent) whyInUse(p placed) string {
	pids, err := a.hw.Processes(p.gpu, p.in.GI)
	if err != nil {
		return "couldn't list the processes on the instance: " + err.Error()
	}
	if len(pids) > 0 {
		return fmt.Sprintf("processes %v are using the instance", pids)
	}
	found, err := a.holders([]placed{p})
	if err != nil {
		return "couldn't list the processes that hold the instance open: " + err.Error()
	}
	if len(found[p.in]) > 0 {
		return "held open by " + describe(found[p.in])
	}
	return ""
}
