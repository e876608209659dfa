package agent

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"slices"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/jobcgroup"
)

// cgroups holds the cgroups and the memory limits of the node of a campaign. Like those of a real node, they outlive
// the agent.
type cgroups struct {
	limits gputest.FakeLimits
	groups gputest.FakeGroups
}

// CgroupCall is a call to a method of gpu.MemoryLimits or jobGroups.
type CgroupCall struct {
	Op    string
	GPU   int
	Name  string // of a cgroup, or its path
	Bytes uint64
	Group jobcgroup.Group
}

// CgroupReply is the answer to a CgroupCall.
type CgroupReply struct {
	Bytes, Used uint64
	Groups      []jobcgroup.Group
	Empty       bool
	Err         string
}

// Cgroup executes one call.
func (s *Server) Cgroup(q CgroupCall, rep *CgroupReply) (err error) {
	limits, groups := &s.cgroups.limits, &s.cgroups.groups
	switch q.Op {
	case "SetLimit":
		err = limits.SetLimit(q.GPU, q.Name, q.Bytes)
	case "Limit":
		rep.Bytes, rep.Used, err = limits.Limit(q.GPU, q.Name)
	case "Make":
		rep.Groups = make([]jobcgroup.Group, 1)
		rep.Groups[0], err = groups.Make(q.Name)
	case "Made":
		rep.Groups, err = groups.Made()
	case "Check":
		err = groups.Check(q.Group)
	case "Empty":
		rep.Empty, err = groups.Empty(q.Group)
	case "Remove":
		err = groups.Remove(q.Group)
	}
	if err != nil {
		rep.Err = err.Error()
	}
	return nil
}

func callCgroups(c *rpc.Client, q CgroupCall) (rep CgroupReply, err error) {
	if err = c.Call("Server.Cgroup", q, &rep); err == nil && rep.Err != "" {
		err = errors.New(rep.Err)
	}
	return rep, err
}

// remoteLimits is a driver whose memory limits are in the test's process.
type remoteLimits struct {
	gpu.Hardware
	c *rpc.Client
}

func (remoteLimits) LimitsProblem() string { return "" }
func (r remoteLimits) SetLimit(on int, cgroup string, bytes uint64) error {
	_, err := callCgroups(r.c, CgroupCall{Op: "SetLimit", GPU: on, Name: cgroup, Bytes: bytes})
	return err
}
func (r remoteLimits) Limit(on int, cgroup string) (limit, used uint64, err error) {
	rep, err := callCgroups(r.c, CgroupCall{Op: "Limit", GPU: on, Name: cgroup})
	return rep.Bytes, rep.Used, err
}

// remoteGroups are the jobGroups in the test's process.
type remoteGroups struct {
	gputest.FakeGroups // for Has, which needs no state
	c                  *rpc.Client
}

func (r *remoteGroups) Make(name string) (jobcgroup.Group, error) {
	rep, err := callCgroups(r.c, CgroupCall{Op: "Make", Name: name})
	if err != nil {
		return jobcgroup.Group{}, err
	}
	return rep.Groups[0], nil
}
func (r *remoteGroups) Made() ([]jobcgroup.Group, error) {
	rep, err := callCgroups(r.c, CgroupCall{Op: "Made"})
	return rep.Groups, err
}
func (r *remoteGroups) Find(number uint64) (jobcgroup.Group, bool) {
	made, err := r.Made()
	k := slices.IndexFunc(made, func(g jobcgroup.Group) bool { return g.Inode == number })
	if err != nil || k < 0 {
		return jobcgroup.Group{}, false
	}
	return made[k], true
}
func (r *remoteGroups) Check(g jobcgroup.Group) error {
	_, err := callCgroups(r.c, CgroupCall{Op: "Check", Group: g})
	return err
}
func (r *remoteGroups) Empty(g jobcgroup.Group) (bool, error) {
	rep, err := callCgroups(r.c, CgroupCall{Op: "Empty", Group: g})
	return rep.Empty, err
}
func (r *remoteGroups) Remove(g jobcgroup.Group) error {
	_, err := callCgroups(r.c, CgroupCall{Op: "Remove", Group: g})
	return err
}

func newFractionCampaign(t testing.TB) *campaign {
	wants := []string{"1f.11gb", "1f.11gb", "2f.22gb", "full", "full:2"}
	k := newCampaignOf(t, "L40S-48GB", fmt.Sprintf(closedL40S, 8, 32), allL40S, wants, config.Config{
		DefaultProfile: "full", Fractions: map[string]int{"l40s": 4},
	})
	k.fake.SetConfig("ProctrackType", "proctrack/cgroup")
	k.fake.SetConfig("TaskPlugin", "task/cgroup")
	k.fake.SetConfig("ConstrainDevices", "yes")
	return k
}

// TestKillFractions is like TestKill, but with jobs that use fractions and whole GPUs without MIG. After each recovery,
// the memory of each job must be limited to that of its fraction, and no other job's cgroup may remain.
func TestKillFractions(t *testing.T) {
	killEverywhere(t, newFractionCampaign, func(point string) bool {
		// A fraction has no compute instance to re-create.
		return !strings.HasPrefix(point, "hook.") && !strings.HasPrefix(point, "remake.") &&
			!strings.HasPrefix(point, "foreseen.")
	}, slices.Index(failpoint.Points, failpoint.UnlimitCleared)%12)
}

// verifyFractions is like verify. The instances are those of the agent, because the driver has none.
func (k *campaign) verifyFractions(s *api.Status) error {
	exists := map[string]gpu.Instance{}
	for _, g := range s.GPUs {
		for i, in := range g.Instances {
			exists[in.UUID] = gpu.Instance{Profile: in.Profile, Start: in.Start}
			for _, other := range g.Instances[:i] {
				if in.Start < other.Start+other.Size && other.Start < in.Start+in.Size {
					return fmt.Errorf("GPU %d: %+v and %+v share units", g.Index, in, other)
				}
			}
		}
	}
	if err := errors.Join(leaked(s), k.leasesExist(exists)); err != nil {
		return err
	}
	made, err := k.cgroups.groups.Made()
	if err != nil {
		return err
	}
	var may, must [2][]int // the users in the list of each GPU's device file; a full GPU's file belongs to its user
	for _, l := range s.Leases {
		made = slices.DeleteFunc(made, func(g jobcgroup.Group) bool { return g == l.Cgroup })
		j, err := k.fake.Job(context.Background(), l.Job)
		running := err == nil && j.Holds() && len(l.Slices) > 0
		if running {
			err = k.limitRight(l)
		}
		if running && err != nil {
			return err
		}
		for _, sl := range l.Slices {
			if may[sl.GPU] = append(may[sl.GPU], int(l.UID)); running && sl.Profile != "full" {
				must[sl.GPU] = append(must[sl.GPU], int(l.UID))
			}
		}
	}
	if len(made) > 0 {
		return fmt.Errorf("cgroups of no job: %v", made)
	}
	for g := range may {
		path := gpu.Caps{Dev: k.node.Dev}.DeviceFile(g)
		got, err := listed(path)
		lacks := func(list []int) func(int) bool { return func(uid int) bool { return !slices.Contains(list, uid) } }
		if err != nil || slices.ContainsFunc(got, lacks(may[g])) || slices.ContainsFunc(must[g], lacks(got)) {
			return fmt.Errorf("users %v can open %s, %v; want %v to %v", got, path, err, must[g], may[g])
		}
	}
	return nil
}

// limitRight checks that a lease's cgroup exists and has the memory of the lease's slices as its limits.
func (k *campaign) limitRight(l api.Lease) error {
	if !k.cgroups.groups.Exists(l.Cgroup) {
		return fmt.Errorf("job %d: the cgroup %+v does not exist", l.Job, l.Cgroup)
	}
	for _, s := range l.Slices {
		want := s.MemoryMiB << 20
		if s.Profile == "full" {
			want = gpu.NoLimit
		}
		if got, _, err := k.cgroups.limits.Limit(s.GPU, l.Cgroup.Path); got != want || err != nil {
			return fmt.Errorf("job %d: GPU %d has the limit %d, %v, want %d", l.Job, s.GPU, got, err, want)
		}
	}
	return nil
}
