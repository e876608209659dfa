package qualify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/node/jobcgroup"
)

// limits checks the memory limits of cgroups on a GPU.
type limits struct {
	r     *run
	c     *card
	hw    *gpu.NVML
	tree  *jobcgroup.Tree
	begin entry             // the journal's line opGroups, if the run has created cgroups
	jobs  []jobcgroup.Group // cgroups like those of jobs
	most  uint64            // the memory of the largest fraction, in MiB
	open  []*helper         // processes that use memory
}

// scratch are the names of a run's own cgroups.
var scratch = []string{"caelum_qualify_1", "caelum_qualify_2"}

// contextMiB is the memory in MiB that a CUDA context may need: about 800 MiB of a limit of 30,000 MiB on an RTX PRO
// 6000 (NVIDIA, Dynamo guide "Per-GPU compute and memory limits with MPS").
const contextMiB = 1024

// divided returns the first GPU that caelum.yaml divides into fractions, or nil.
func (r *run) divided() *card {
	k := slices.IndexFunc(r.cards, func(c *card) bool {
		return c.withoutMIG && r.opt.Fractions[mig.GRESType(c.name)] > 0
	})
	if k < 0 {
		return nil
	}
	return r.cards[k]
}

// openLimits prepares the checks on a GPU. The error is the reason why the driver cannot limit the memory of cgroups.
func (r *run) openLimits(c *card) (l *limits, err error) {
	l = &limits{r: r, c: c}
	if l.hw, err = gpu.OpenNVML(r.opt.Library, r.caps); err != nil {
		return nil, err
	}
	o := r.opt.Cgroups
	if problem := l.hw.LimitsProblem(); problem != "" {
		err = errors.New(problem)
	} else if o.Controller, err = jobcgroup.Controller(o.Mountpoint, r.opt.Proc); err == nil {
		l.tree, err = jobcgroup.Open(o)
	}
	if err == nil {
		_, err = l.hw.GPUs() // before limits are set or read
	}
	if err != nil {
		l.hw.Close()
		return nil, err
	}
	return l, nil
}

// fractions checks the memory limits of cgroups on one GPU (F1 to F10).
func (r *run) fractions(ctx context.Context) error {
	c := r.divided()
	if c == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	memory, _ := c.dev.GetMemoryInfo()
	model, err := mig.Fractions(c.name, memory.Total>>20, r.opt.Fractions[mig.GRESType(c.name)])
	if err != nil {
		r.rep.without["F"] = err.Error()
		return nil
	}
	l, err := r.openLimits(c)
	if err != nil {
		r.rep.differs("F1", "%v", err)
		r.rep.without["F"] = "no memory limits"
		return nil
	}
	r.limits = l
	r.rep.holds("F1", "the driver and the kernel have what memory limits need")
	without, err := l.tree.Without()
	if err != nil {
		r.rep.skipLimits("%v", err) // slurmd has never started
		return nil
	}
	l.most = model.Profiles[len(model.Profiles)-1].MemoryMiB
	l.begin = entry{Op: opGroups, GPU: c.uuid, Paths: without}
	if err := r.journal.write(l.begin); err != nil {
		return err
	}
	for _, name := range scratch {
		g, err := l.tree.Make(name)
		if err != nil {
			return err
		}
		l.jobs = append(l.jobs, g)
	}
	if ok, err := l.removed(); !ok || err != nil {
		return err
	}
	if list, ret := c.dev.GetComputeRunningProcesses(); ret != nvml.SUCCESS || len(list) > 0 {
		r.rep.skipLimits("GPU %d is in use by another program", c.index)
		return nil
	}
	return l.allocations(ctx, memory.Total>>20)
}

// skipLimits adds a reason to the rows that need more than F1.
func (r *Report) skipLimits(format string, args ...any) {
	for k := 2; k <= 10; k++ {
		r.skip(fmt.Sprint("F", k), format, args...)
	}
}

// set sets the limit of a job's cgroup in MiB, and compares it with what the driver reports. 0 removes the limit.
func (l *limits) set(job int, row string, mib uint64) bool {
	if err := l.hw.SetLimit(l.c.index, l.jobs[job].Path, inBytes(mib)); err != nil {
		l.r.rep.differs(row, "%v", err)
		return false
	}
	return l.has(job, row, mib)
}

// has compares the limit that the driver reports.
func (l *limits) has(job int, row string, mib uint64) bool {
	got, _, err := l.hw.Limit(l.c.index, l.jobs[job].Path)
	switch want := inBytes(mib); {
	case err != nil:
		l.r.rep.differs(row, "%v", err)
	case !gpu.SameLimit(got, want):
		l.r.rep.differs(row, "the driver reported a limit of %d bytes instead of %d", got, want)
	default:
		l.r.rep.holds(row, "the driver reported the limits")
		return true
	}
	return false
}

// inWords describes a limit.
func inWords(mib uint64) string {
	if mib == 0 {
		return "no limit"
	}
	return fmt.Sprintf("a limit of %d MiB", mib)
}

// inBytes returns a limit in bytes.
func inBytes(mib uint64) uint64 {
	if mib == 0 {
		return gpu.NoLimit
	}
	return mib << 20
}

// removed removes the limit of a job's cgroup and then the cgroup, and creates another with the same path (F9).
func (l *limits) removed() (ok bool, err error) {
	if !l.set(1, "F2", l.most) {
		return false, nil
	}
	l.set(1, "F9", 0)
	if err = l.tree.Remove(l.jobs[1]); err == nil {
		l.jobs[1], err = l.tree.Make(scratch[1])
	}
	if err == nil {
		l.has(1, "F9", 0)
	}
	return true, err
}

// allocations lets processes allocate memory in cgroups with limits (F3 to F8 and F10). whole is the GPU's memory in
// MiB; CUDA shows up to 10% less, for example because of ECC.
func (l *limits) allocations(ctx context.Context, whole uint64) error {
	const device, managed = "device", "managed"
	less := l.most - min(contextMiB, l.most/2)
	for _, s := range []struct {
		row   string
		job   int
		limit uint64 // in MiB
		kind  string
		mib   uint64
		fails bool
		ends  bool // the processes of this step and of those before it end
	}{
		{"F3", 0, l.most, device, l.most + 1024, true, true},
		{"F3", 0, l.most, device, less, false, false},
		{"F7", 0, l.most + 2*contextMiB, device, 1024, false, true},
		{"F5", 0, l.most, device, less, false, false},
		{"F5", 1, l.most, device, less, false, true},
		{"F10", 0, 0, device, whole*9/10 - contextMiB, false, true},
		// About 1 GiB of the managed memory has to move to the host's.
		{"F8", 0, l.most, managed, whole - l.most + 2*contextMiB, false, false},
		{"F8", 1, l.most, device, less, false, true},
	} {
		row := map[string]string{"F7": "F7", "F10": "F9"}[s.row]
		if ok := l.set(s.job, cmp.Or(row, "F2"), s.limit); !ok && s.limit > 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		a, err := l.allocate(s.job, s.mib, s.kind)
		if err != nil {
			return err
		}
		if a.Result != 0 && a.Result != outOfMemory {
			l.r.rep.skipLimits("an allocation of memory answered %s", a)
			return nil
		}
		switch {
		case s.kind == managed: // as long as the other job gets its memory, any result is right
		case s.limit == 0:
			l.r.rep.check(a.TotalMiB >= whole*9/10, "F10", "CUDA shows %d of %d MiB", a.TotalMiB, whole)
		case s.row == "F3":
			l.r.rep.check(a.TotalMiB <= s.limit && a.TotalMiB+1 >= s.limit, "F4", "CUDA shows %d MiB", a.TotalMiB)
		}
		l.r.rep.check(s.kind == managed || s.fails == (a.Result != 0), s.row,
			"with %s, an allocation of %d MiB of %s memory answered %s", inWords(s.limit), s.mib, s.kind, a)
		if s.row == "F3" && !s.fails {
			l.charged(s.mib)
		}
		if s.ends {
			l.release()
		}
	}
	return nil
}

// charged compares the memory that the driver counts for a job's cgroup with that of its only process (F6).
func (l *limits) charged(allocated uint64) {
	_, used, err := l.hw.Limit(l.c.index, l.jobs[0].Path)
	list, _ := l.c.dev.GetComputeRunningProcesses()
	listed := uint64(0)
	for _, p := range list {
		if p.UsedGpuMemory != math.MaxUint64 { // not available
			listed += p.UsedGpuMemory >> 20
		}
	}
	used >>= 20
	l.r.rep.check(err == nil && used >= allocated && listed <= used+gpu.LimitSlackMiB, "F6",
		"the driver counts %d MiB for a process that allocated %d MiB; the process list has %d MiB", used, allocated,
		listed)
}

// release ends the processes that use memory, and waits until the driver has freed it.
func (l *limits) release() {
	for _, h := range l.open {
		h.end()
	}
	l.open = nil
	for end := time.Now().Add(destroyLimit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if list, _ := l.c.dev.GetComputeRunningProcesses(); len(list) == 0 {
			return
		}
	}
}

// close ends the processes, removes the limits and the run's cgroups, and disables the controller where it was not
// enabled before.
func (l *limits) close() (errs error) {
	defer l.hw.Close()
	if len(l.open) > 0 {
		l.release()
	}
	if _, err := l.tree.Without(); err != nil || l.begin.Op == "" {
		return nil // without the parent of the jobs' cgroups, there are no cgroups
	}
	for _, name := range scratch {
		g, err := l.tree.Make(name) // also if the run was killed while it created the cgroup
		if err == nil {
			err = l.remove(g)
		}
		errs = errors.Join(errs, err)
	}
	if errs = errors.Join(errs, l.tree.Disable(l.begin.Paths)); errs != nil {
		return errs
	}
	return l.r.journal.write(entry{Op: opGroupsGone})
}

// remove removes a cgroup and its limit. The processes of a killed run may still be ending.
func (l *limits) remove(g jobcgroup.Group) error {
	limit, _, limited := l.hw.Limit(l.c.index, g.Path)
	if limited != nil || limit != gpu.NoLimit {
		limited = l.hw.SetLimit(l.c.index, g.Path, gpu.NoLimit)
	}
	for end := time.Now().Add(destroyLimit); ; time.Sleep(200 * time.Millisecond) {
		if err := l.tree.Remove(g); err == nil || time.Now().After(end) {
			return errors.Join(limited, err)
		}
	}
}
