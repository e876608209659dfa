package slurm

import (
	"maps"
	"slices"
)

// Same reports whether two node records are equal. It ignores Asked, which is not part of the record, and Comment,
// because no plan depends on it and a watcher changes it every few seconds.
func (n *Node) Same(o *Node) bool {
	return n.Name == o.Name && slices.Equal(n.States, o.States) && n.Reason == o.Reason &&
		slices.Equal(n.Partitions, o.Partitions) && slices.Equal(n.Gres, o.Gres) &&
		slices.Equal(n.GresUsed, o.GresUsed) && n.MIGTotal == o.MIGTotal && n.Unregistered == o.Unregistered &&
		n.BootTime == o.BootTime && n.SlurmdStartTime == o.SlurmdStartTime &&
		slices.Equal(n.Features, o.Features) && n.Addr == o.Addr && n.HostName == o.HostName &&
		n.CPUs == o.CPUs && n.CPUsFree == o.CPUsFree && n.Memory == o.Memory && n.MemoryFree == o.MemoryFree &&
		n.TmpDisk == o.TmpDisk && n.Sockets == o.Sockets &&
		n.CoresPerSocket == o.CoresPerSocket && n.ThreadsPerCore == o.ThreadsPerCore &&
		slices.Equal(n.Reservations, o.Reservations) && n.Weight == o.Weight && n.Extra == o.Extra &&
		n.Version == o.Version
}

// Same reports whether two waiting-job records are equal.
func (w *Waiting) Same(o *Waiting) bool { return w.Elements == o.Elements && w.Job.Same(o.Job) }

// Same reports whether two job records are equal.
func (j *Job) Same(o *Job) bool {
	return j.ID == o.ID && j.sameState(o) && j.sameRequest(o) && j.ArrayJob == o.ArrayJob &&
		j.ArrayTask == o.ArrayTask && j.HetJob == o.HetJob && slices.Equal(j.HetJobs, o.HetJobs) && j.Name == o.Name &&
		j.User == o.User && j.Account == o.Account && j.Partition == o.Partition && j.QOS == o.QOS && j.UID == o.UID
}

func (j *Job) sameState(o *Job) bool {
	return j.State == o.State && j.Reason == o.Reason && j.Priority == o.Priority && j.Expedited == o.Expedited &&
		j.Restarts == o.Restarts && j.Submit == o.Submit && j.Eligible == o.Eligible && j.Start == o.Start &&
		j.End == o.End && slices.Equal(j.Nodes, o.Nodes) && j.NumNodes == o.NumNodes &&
		j.AdminComment == o.AdminComment && j.Comment == o.Comment && j.LastSchedEval == o.LastSchedEval &&
		j.Dependency == o.Dependency && j.Nice == o.Nice && j.Problem == o.Problem &&
		maps.EqualFunc(j.Allocated, o.Allocated, slices.Equal[GRESList])
}

func (j *Job) sameRequest(o *Job) bool {
	return j.Batch == o.Batch && j.Requeue == o.Requeue && j.Exclusive == o.Exclusive && j.TimeLimit == o.TimeLimit &&
		slices.Equal(j.ReqNodes, o.ReqNodes) && slices.Equal(j.ExcNodes, o.ExcNodes) && j.Features.same(&o.Features) &&
		j.Reservation == o.Reservation && j.MinCPUs == o.MinCPUs && j.CPUsPerGPU == o.CPUsPerGPU &&
		j.CPUsPerTRES == o.CPUsPerTRES &&
		j.MemoryPerGPU == o.MemoryPerGPU && j.TmpDisk == o.TmpDisk && j.Sockets == o.Sockets &&
		j.CoresPerSocket == o.CoresPerSocket && j.ThreadsPerCore == o.ThreadsPerCore &&
		slices.Equal(j.PerNode, o.PerNode) && slices.Equal(j.PerJob, o.PerJob) &&
		slices.Equal(j.PerTask, o.PerTask) && slices.Equal(j.PerSocket, o.PerSocket) && j.Tasks == o.Tasks &&
		j.CPUs == o.CPUs && j.Memory == o.Memory && j.Licenses == o.Licenses && j.TimeMin == o.TimeMin &&
		j.Deadline.Equal(o.Deadline)
}

func (c *Constraint) same(o *Constraint) bool {
	groups := func(a, b FeatureGroup) bool { return a.Or == b.Or && slices.Equal(a.Features, b.Features) }
	return c.Text == o.Text && c.Nodes == o.Nodes && c.Problem == o.Problem &&
		slices.EqualFunc(c.Always, o.Always, groups) && slices.EqualFunc(c.AnyOf, o.AnyOf, groups)
}
