package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"caelum/internal/core/mig"
	"caelum/internal/failpoint"
	"caelum/internal/node/jobcgroup"
)

// A fraction is a slice of a GPU without MIG: some of the equal units of the GPU's memory. The driver does not know
// fractions. It knows only limits of the memory that the processes of a cgroup may allocate on a GPU (MemoryLimits). A
// fraction is therefore an instance that exists only in the agent's memory and ledger. Creating and destroying it does
// not call the driver. When a job gets the fraction, its memory becomes the limit of the job's cgroup.

// FractionOptions are the options of WithFractions.
type FractionOptions struct {
	// Units holds the number of fractions of the smallest size, by GRES type.
	Units map[string]int
	// Problem is the reason why memory cannot be limited on this node. If it is not empty, no GPU has fractions.
	Problem string
	Limits  MemoryLimits
	Groups  JobGroups
	// Cgroups returns a process's cgroups ([Processes.Cgroups]).
	Cgroups func(pid int) ([]string, error)
}

// JobGroups manages the cgroups of jobs. Except in tests, it is a *jobcgroup.Tree.
type JobGroups interface {
	Make(name string) (jobcgroup.Group, error)
	Check(g jobcgroup.Group) error
	Empty(g jobcgroup.Group) (bool, error)
	Processes(g jobcgroup.Group, most int) []int
	Remove(g jobcgroup.Group) error
	Has(g jobcgroup.Group, paths []string) bool
}

// Fractions is a Hardware whose GPUs without MIG have fractions. It passes all calls for other GPUs on.
type Fractions struct {
	Hardware
	FractionOptions

	repairs sync.Mutex // held while a cgroup is repaired, because samples of two GPUs may find that it needs it
	mu      sync.Mutex
	gpus    map[int]*divided
}

// divided is a GPU with fractions.
type divided struct {
	uuid  string
	model *mig.Model
	on    map[int]*held // by GI
	// resizing is locked while an instance's size and the limit of its job differ (Resize).
	resizing sync.Mutex
	// changes is locked while limits on the GPU change, so that a sample cannot restore those of an ended job. Each GPU
	// has its own lock, because a call to a hanging GPU does not return.
	changes sync.Mutex
}

// held is an instance, and the cgroup of the job that has its memory.
type held struct {
	Instance
	job jobcgroup.Group
}

// WithFractions returns hw with fractions.
func WithFractions(hw Hardware, o FractionOptions) *Fractions {
	return &Fractions{Hardware: hw, FractionOptions: o, gpus: map[int]*divided{}}
}

// OpenJobGroups opens the cgroups of jobs whose memory l limits. It sets o.Controller. proc is /proc on a real node.
// The error is the reason why the memory of jobs cannot be limited on this node, with a remedy.
func OpenJobGroups(l Limiter, o jobcgroup.Options, proc string) (_ *jobcgroup.Tree, err error) {
	if problem := l.LimitsProblem(); problem != "" {
		return nil, errors.New(problem)
	}
	if _, ok := l.(SoftMig); !ok {
		if o.Controller, err = jobcgroup.Controller(o.Mountpoint, proc); err != nil {
			return nil, err
		}
	}
	return jobcgroup.Open(o)
}

// GPUs implements Hardware.
func (f *Fractions) GPUs() ([]GPU, error) {
	all, err := f.Hardware.GPUs()
	for i := range all {
		f.divide(&all[i])
	}
	return all, err
}

// Discover implements Hardware.
func (f *Fractions) Discover(gpu int) GPU {
	g := f.Hardware.Discover(gpu)
	f.divide(&g)
	return g
}

// divide gives a GPU without MIG the model with its fractions.
func (f *Fractions) divide(g *GPU) {
	if g.Problem != WithoutMIG || g.Model == nil || f.Units[g.Model.Type] == 0 {
		return
	}
	if g.Undivided = f.Problem; g.Undivided != "" {
		return
	}
	m, err := mig.Fractions(g.Name, g.MemoryMiB, f.Units[g.Model.Type])
	if err != nil {
		g.Undivided = err.Error()
		return
	}
	g.Model = m
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gpus[g.Index] == nil {
		f.gpus[g.Index] = &divided{uuid: g.UUID, model: m.WithFull(g.MemoryMiB), on: map[int]*held{}}
	}
}

// Keep records that an instance exists which an earlier agent has created, and the cgroup of its job. It ignores GPUs
// without fractions.
func (f *Fractions) Keep(gpu int, in Instance, job jobcgroup.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.gpus[gpu]; d != nil {
		in.CIs, in.Whole = []int{0}, true
		d.on[in.GI] = &held{in, job}
	}
}

// Divided reports whether a GPU has fractions.
func (f *Fractions) Divided(gpu int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus[gpu] != nil
}

// fraction returns the GPU with the given index and a copy of its instance, or nil if it has no fractions or no such
// instance.
func (f *Fractions) fraction(gpu, gi int) (d *divided, h *held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d = f.gpus[gpu]; d != nil && d.on[gi] != nil {
		h = new(*d.on[gi])
	}
	return d, h
}

// Instances implements Hardware.
func (f *Fractions) Instances(gpu int) ([]Instance, error) {
	if d, _ := f.fraction(gpu, 0); d == nil {
		return f.Hardware.Instances(gpu)
	}
	if _, err := f.Hardware.Instances(gpu); err != nil { // the GPU is lost
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Instance
	for h := range maps.Values(f.gpus[gpu].on) {
		all = append(all, h.Instance)
	}
	slices.SortFunc(all, func(x, y Instance) int { return cmp.Compare(x.Start, y.Start) })
	return all, nil
}

// Exists implements Hardware.
func (f *Fractions) Exists(gpu int, in Instance) (bool, error) {
	d, h := f.fraction(gpu, in.GI)
	if d == nil {
		return f.Hardware.Exists(gpu, in)
	}
	return h != nil && h.UUID == in.UUID, nil
}

// Create implements Hardware.
func (f *Fractions) Create(gpu int, profile string, start int) (Instance, error) {
	d, _ := f.fraction(gpu, 0)
	if d == nil {
		return f.Hardware.Create(gpu, profile, start)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	serial := 0 // the smallest one not in use
	for d.on[FractionGI(serial)] != nil {
		serial++
	}
	in, err := d.instance(profile, start, serial)
	if err != nil {
		return Instance{}, err
	}
	for h := range maps.Values(d.on) {
		if h.Start < in.Start+in.Size && in.Start < h.Start+h.Size {
			return Instance{}, fmt.Errorf("create %s at %d: %w", profile, start, ErrNoRoom)
		}
	}
	d.on[in.GI] = &held{Instance: in}
	return in, nil
}

// DeviceUUID returns the UUID of the device that a task sees: that of the GPU if uuid is a fraction's.
func DeviceUUID(uuid string) string {
	if device, _, ok := strings.Cut(uuid, "/"); ok && strings.HasPrefix(uuid, "GPU-") {
		return device
	}
	return uuid
}

// instance returns the instance of a profile at a start. The error wraps ErrNotFound.
func (d *divided) instance(profile string, start, serial int) (Instance, error) {
	p, ok := d.model.Placement(profile, start)
	if !ok {
		return Instance{}, fmt.Errorf("the GPU has no %s at %d: %w", profile, start, ErrNotFound)
	}
	in := Instance{GI: FullGI, Profile: profile, Start: start, Size: d.model.Placements[p].Size, CIs: []int{0},
		Whole: true, UUID: d.uuid}
	if profile != mig.Full {
		in.GI = FractionGI(serial)
		in.UUID = fmt.Sprintf("%s/%d", d.uuid, serial)
	}
	return in, nil
}

// Remake implements Hardware. A fraction has nothing that a job could leave behind.
func (f *Fractions) Remake(gpu int, in Instance) (Instance, error) {
	if d, _ := f.fraction(gpu, in.GI); d == nil {
		return f.Hardware.Remake(gpu, in)
	}
	return in, nil
}

// Destroy implements Hardware. The error wraps ErrInUse while the last job still has processes.
func (f *Fractions) Destroy(gpu, gi int) error {
	d, h := f.fraction(gpu, gi)
	if d == nil {
		return f.Hardware.Destroy(gpu, gi)
	}
	if h == nil {
		return nil
	}
	if h.job.Path != "" { // otherwise, the GPU may hang, but the call returns
		if err := f.Unlimit(gpu, gi); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(d.on, gi)
	return nil
}

// Limit sets the memory of an instance as the limit of a job's cgroup, and checks that the driver has accepted it. For
// a full GPU, it removes a limit that an earlier cgroup may have left behind: the driver of release 615 on kernels
// without the dmem controller stores limits under the address of the cgroup and never removes them (memacct.c in
// 615.71.09).
func (f *Fractions) Limit(gpu, gi int, job jobcgroup.Group) error {
	d, h := f.fraction(gpu, gi)
	if h == nil {
		return fmt.Errorf("limit the memory: %w", ErrNotFound)
	}
	d.changes.Lock()
	defer d.changes.Unlock()
	return f.setLimit(gpu, gi, job)
}

// setLimit is Limit for callers that hold the GPU's lock changes.
func (f *Fractions) setLimit(gpu, gi int, job jobcgroup.Group) error {
	d, h := f.fraction(gpu, gi)
	if h == nil {
		return fmt.Errorf("limit the memory: %w", ErrNotFound)
	}
	f.setJob(gpu, gi, job) // from now on, Unlimit is responsible for the cgroup
	if err := f.Groups.Check(job); err != nil {
		return err
	}
	want := d.limit(h.Instance)
	if err := f.Limits.SetLimit(gpu, job.Path, want); err != nil {
		return err
	}
	return f.limited(gpu, job, want)
}

// setJob records the job that has an instance's memory. If there is none, job is empty.
func (f *Fractions) setJob(gpu, gi int, job jobcgroup.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.gpus[gpu].on[gi]; h != nil {
		h.job = job
	}
}

// limit returns the memory limit of an instance's job in bytes.
func (d *divided) limit(in Instance) uint64 {
	if in.GI == FullGI {
		return NoLimit
	}
	p, _ := d.model.ProfileIndex(in.Profile)
	return d.model.Profiles[p].MemoryMiB << 20
}

// limited returns an error unless the limit is in force.
func (f *Fractions) limited(gpu int, job jobcgroup.Group, want uint64) error {
	got, _, err := f.Limits.Limit(gpu, job.Path)
	if err == nil && !SameLimit(got, want) {
		err = fmt.Errorf("the memory limit of %s is %d bytes instead of %d", job.Path, got, want)
	}
	return err
}

// maxRemaining limits the number of processes in an error of InUse.
const maxRemaining = 5

// InUse returns an error while the cgroup of an instance's last job has processes, whether or not they use the GPU. The
// error wraps ErrInUse if this is certain.
func (f *Fractions) InUse(gpu, gi int) error {
	_, h := f.fraction(gpu, gi)
	if h == nil || h.job.Path == "" {
		return nil
	}
	empty, err := f.Groups.Empty(h.job)
	if err == nil && !empty {
		err = fmt.Errorf("processes %v of the last job remain in %s: %w", f.Groups.Processes(h.job, maxRemaining),
			h.job.Path, ErrInUse)
	}
	return err
}

// Unlimit ends the use of an instance by its last job: it removes the limit and the cgroup. The error wraps ErrInUse
// while the job still has processes. After any error, the instance remains the job's, so that a later call continues.
func (f *Fractions) Unlimit(gpu, gi int) error {
	d, h := f.fraction(gpu, gi)
	if h == nil {
		return nil
	}
	d.changes.Lock()
	defer d.changes.Unlock()
	if _, h = f.fraction(gpu, gi); h == nil || h.job.Path == "" {
		return nil
	}
	if err := f.InUse(gpu, gi); err != nil {
		return err
	}
	if f.Groups.Check(h.job) == nil {
		if err := f.Limits.SetLimit(gpu, h.job.Path, NoLimit); err != nil {
			return err
		}
	}
	failpoint.Hit(failpoint.UnlimitCleared)
	return f.leaveGroup(gpu, gi, h.job)
}

// leaveGroup ends the use of a job's cgroup by an instance. If no instance on another GPU uses it, it removes the
// cgroup.
func (f *Fractions) leaveGroup(gpu, gi int, job jobcgroup.Group) error {
	if f.leaveShared(gpu, gi, job) {
		return nil
	}
	if err := f.Groups.Remove(job); err != nil {
		return err
	}
	failpoint.Hit(failpoint.UnlimitRemoved)
	f.setJob(gpu, gi, jobcgroup.Group{})
	return nil
}

// leaveShared ends the use of a job's cgroup by an instance if an instance on another GPU uses it. The lock is held
// throughout, so that one of two such calls at the same time returns false.
func (f *Fractions) leaveShared(gpu, gi int, job jobcgroup.Group) (shared bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for g, d := range f.gpus {
		for other := range maps.Values(d.on) {
			shared = shared || g != gpu && other.job == job
		}
	}
	if h := f.gpus[gpu].on[gi]; shared && h != nil {
		h.job = jobcgroup.Group{}
	}
	return shared
}

// Processes implements Hardware.
func (f *Fractions) Processes(gpu, gi int) (own []int, err error) {
	d, h := f.fraction(gpu, gi)
	if d == nil || gi == FullGI {
		return f.Hardware.Processes(gpu, gi)
	}
	all, err := f.Hardware.Processes(gpu, FullGI)
	for _, pid := range all {
		if h != nil && f.has(pid, h.job) {
			own = append(own, pid)
		}
	}
	return own, err
}

// Belongs reports whether a process belongs to a job with a part of the GPU.
func (f *Fractions) Belongs(gpu, pid int) bool {
	f.mu.Lock()
	var jobs []jobcgroup.Group
	if d := f.gpus[gpu]; d != nil {
		for h := range maps.Values(d.on) {
			jobs = append(jobs, h.job)
		}
	}
	f.mu.Unlock()
	return f.has(pid, jobs...)
}

// has reports whether a process is in one of the jobs' cgroups.
func (f *Fractions) has(pid int, jobs ...jobcgroup.Group) bool {
	paths, err := f.Cgroups(pid)
	return err == nil && slices.ContainsFunc(jobs, func(job jobcgroup.Group) bool {
		return job.Path != "" && f.Groups.Has(job, paths)
	})
}
