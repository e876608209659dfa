package usage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/controller/repo"
	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// Observer observes the jobs on a node that Caelum does not manage. It changes neither a GPU nor slurmctld's data:
// none of its interfaces has a method that could.
type Observer struct {
	// Node is the node's name in slurm.conf.
	Node     string
	Hardware ObservedHardware
	Slurm    ObservedQueue
	// Cgroups returns a process's cgroups ([gpu.Processes.Cgroups]), and Started its [gpu.Process.Start].
	Cgroups func(pid int) ([]string, error)
	Started func(pid int) (uint64, error)
	// Record stores a run that has ended. Calls do not overlap.
	Record func(repo.Observed) error
	Now    func() time.Time     // the wall-clock time
	Clock  func() time.Duration // the time of CLOCK_MONOTONIC
	Log    *logrus.Entry

	began     time.Time // the usage of jobs that started earlier is unknown
	gpus      []gpu.GPU
	first     *observedDevice            // describes the runs whose usage is unknown
	devices   []*observedDevice          // used by Sample only
	looked    time.Duration              // the time of the last look at the devices; used by Sample only
	asked     time.Duration              // the end of the last call to Slurm.Processes; used by Sample only
	owners    map[observedProcess]uint32 // jobs according to Slurm, from the last sample; used by Sample only
	strangers map[observedProcess]int    // the number of calls that did not find the process; used by Sample only
	done      map[observedRun]bool       // the recorded runs that slurmctld still lists; used by Poll only
	mu        sync.Mutex                 // protects open
	open      map[uint32]*openedRun      // by job
}

// observedProcess identifies a process. A later process with the same pid has another start.
type observedProcess struct {
	pid   int
	start uint64
}

// ObservedHardware is the subset of the driver's methods that an Observer uses. *gpu.NVML implements it.
type ObservedHardware interface {
	GPUs() ([]gpu.GPU, error)
	Instances(gpu int) ([]gpu.Instance, error)
	Meter(gpu int, in gpu.Instance) (gpu.Meter, error)
	Busy(gpu int) float64
}

// ObservedQueue is the subset of the Slurm client's methods that an Observer uses.
type ObservedQueue interface {
	AllOn(ctx context.Context, node string) ([]slurm.Job, error)
	Script(ctx context.Context, id uint32) (string, error)
	Processes(ctx context.Context, node string) (map[int]uint32, error)
}

// observedDevice is a GPU whose MIG mode is off, or a static MIG device.
type observedDevice struct {
	g       gpu.GPU
	in      gpu.Instance
	gpuType string
	memory  float64 // MiB
	meter   gpu.Meter
	failed  bool // true if an error has been logged
}

// lookInterval is the interval at which an Observer looks for static MIG devices that have been created or destroyed.
const lookInterval = time.Minute

// Run samples the devices every sample interval and reads the jobs from slurmctld every poll interval, until ctx is
// done. It returns an error if the node has no GPU. Runs that have not ended are not recorded.
func (o *Observer) Run(ctx context.Context, sample, poll time.Duration) error {
	if err := o.Start(ctx); err != nil {
		return err
	}
	var tasks sync.WaitGroup
	every := func(interval time.Duration, f func(context.Context)) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				f(ctx)
			}
		}
	}
	tasks.Go(func() { every(sample, o.Sample) })
	tasks.Go(func() { every(poll, o.Poll) })
	tasks.Wait()
	return nil
}

// Sample takes one sample of each device. While it reads the devices, it holds no lock.
func (o *Observer) Sample(ctx context.Context) {
	if now := o.Clock(); now-o.looked >= lookInterval {
		o.look()
		o.looked = now
	}
	uses := make([]gpu.Use, len(o.devices))
	for k, d := range o.devices {
		var err error
		if uses[k], err = d.meter.Read(); err != nil && !d.failed {
			o.Log.WithError(err).WithField("gpu", d.g.Index).Warn("couldn't sample a device; trying again")
		}
		d.failed = err != nil
	}
	jobOf := o.jobs(ctx)
	for k, d := range o.devices {
		if !d.failed && len(uses[k].PIDs) <= maxObservedProcesses {
			o.add(d, uses[k], jobOf)
		}
	}
}

// jobs returns a function that returns the job of a process, or 0. It asks Slurm at most once, and only about processes
// that were not in the last sample and whose cgroups contain no job id.
func (o *Observer) jobs(ctx context.Context) func(pid int) uint32 {
	before, strangers := o.owners, o.strangers
	o.strangers = map[observedProcess]int{}
	o.owners = map[observedProcess]uint32{}
	var tracked map[int]uint32
	asked := false
	return func(pid int) uint32 {
		paths, err := o.Cgroups(pid)
		if err != nil {
			return 0 // the process has ended
		}
		if job, _ := gpu.SlurmJob(paths); job != 0 {
			return job
		}
		start, err := o.Started(pid)
		if err != nil {
			return 0
		}
		p := observedProcess{pid, start}
		job := before[p]
		if job == 0 {
			asks := strangers[p]
			if !asked && asks < maxAsks && o.Clock()-o.asked >= askInterval {
				asked = true
				if tracked, err = o.Slurm.Processes(ctx, o.Node); err != nil {
					o.Log.WithError(err).Warn("couldn't list the processes of jobs; trying again")
				}
				o.asked = o.Clock()
			}
			if asked {
				asks++
			}
			if job = tracked[pid]; job == 0 {
				o.strangers[p] = asks
				return 0
			}
		}
		o.owners[p] = job
		return job
	}
}

// askInterval is the minimum time between calls to Slurm.Processes, which asks each slurmstepd on the node. Without
// it, a user whose processes use a GPU for a moment would cause a call for each sample.
const askInterval = 2 * time.Second

// maxAsks is the number of times that Slurm is asked about a process before it counts as outside all jobs. A slurmstepd
// that is just starting may be missing in an answer. A call that fails counts too, because it may take long.
const maxAsks = 3

// maxObservedProcesses limits the processes of a device in a sample. A sample with more is not used, because finding
// their jobs would delay the samples of the other devices.
const maxObservedProcesses = 1000

// add adds a sample of a device to the runs of its jobs. If a run that used the device before has no process on it, the
// sample counts only if the run uses the device again, because the job may have ended.
func (o *Observer) add(d *observedDevice, use gpu.Use, jobOf func(pid int) uint32) {
	uses, users := map[uint32]*gpu.Use{}, map[uint32]bool{}
	for k, pid := range use.PIDs {
		job := jobOf(pid)
		users[job] = true
		if uses[job] == nil {
			uses[job] = &gpu.Use{}
		}
		if uses[job].Processes++; use.ProcessMiB[k] < 0 || uses[job].MemoryMiB < 0 {
			uses[job].MemoryMiB = -1
		} else {
			uses[job].MemoryMiB += use.ProcessMiB[k]
		}
	}
	busy := -1.0
	if len(users) == 1 && d.in.GI == gpu.FullGI {
		busy = o.Hardware.Busy(d.g.Index)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for job, r := range o.open {
		if on := r.usageOn(d); on != nil && uses[job] == nil {
			on.gap++
		}
	}
	for job, u := range uses {
		if job == 0 || u.MemoryMiB < 0 {
			continue
		}
		r := o.open[job]
		if r == nil {
			r = &openedRun{observation: observation{Began: o.Clock()}}
			o.open[job] = r
		}
		on := r.usageOn(d)
		if on == nil {
			on = &sliceUsage{GPU: d.g.Index, UUID: d.in.UUID, Profile: d.in.Profile, MemoryMiB: d.memory, LastUtil: -1}
			r.Slices, r.Run.GPUType = append(r.Slices, on), d.gpuType
		}
		for ; on.gap > 0; on.gap-- {
			on.add(gpu.Use{Util: -1})
		}
		if u.Util = -1; len(users) == 1 {
			u.Util = use.Util
			r.addBusy(busy)
		}
		on.add(*u)
	}
}

// Start finds the node's devices and reads the jobs for the first time.
func (o *Observer) Start(ctx context.Context) error {
	gpus, err := o.Hardware.GPUs()
	if err != nil {
		return err
	}
	o.gpus = gpus
	if o.look(); len(o.devices) == 0 {
		return errNoDevice(gpus)
	}
	// slurmctld rounds starts down to whole seconds.
	o.first, o.open, o.began, o.looked = o.devices[0], map[uint32]*openedRun{}, o.Now().Truncate(time.Second), o.Clock()
	o.Poll(ctx)
	return nil
}

// look finds the devices. A device that still exists keeps its meter.
func (o *Observer) look() {
	var all []*observedDevice
	for _, g := range o.gpus {
		all = append(all, o.devicesOf(g, o.devices)...)
	}
	for _, d := range o.devices {
		if !slices.Contains(all, d) {
			d.meter.Close()
		}
	}
	o.devices = all
}

// devicesOf returns the devices of a GPU. It reuses those that are in known.
func (o *Observer) devicesOf(g gpu.GPU, known []*observedDevice) (all []*observedDevice) {
	found, err := o.Hardware.Instances(g.Index)
	if err != nil || len(found) == 0 { // the instances cannot be read, or the GPU has no MIG device
		found = []gpu.Instance{{GI: gpu.FullGI, Profile: mig.Full, UUID: g.UUID}}
	}
	for _, in := range found {
		if in.UUID == "" {
			continue // a GPU instance without a compute instance
		}
		k := slices.IndexFunc(known, func(d *observedDevice) bool { return d.in.UUID == in.UUID && d.in.GI == in.GI })
		if k >= 0 {
			all = append(all, known[k])
			continue
		}
		d := &observedDevice{g: g, in: in, gpuType: mig.GRESType(g.Name), memory: float64(g.MemoryMiB)}
		if m := g.Model; m != nil {
			d.gpuType = m.Type
			whole := slices.IndexFunc(m.Profiles, func(p mig.Profile) bool {
				return mig.Plain(p) && p.Size == m.Grid && p.Compute == m.Compute()
			})
			if in.GI == gpu.FullGI && whole >= 0 {
				d.in.Profile = m.Profiles[whole].Name
			} else if p, ok := m.ProfileIndex(in.Profile); ok {
				d.memory = m.Profiles[p].Memory()
			}
		}
		d.memory = cmp.Or(d.memory, 1<<20) // unknown: the quantiles are then equal to the peak
		if d.meter, err = o.Hardware.Meter(g.Index, in); err != nil {
			o.Log.WithError(err).WithField("gpu", g.Index).Warn("couldn't observe a device")
			continue
		}
		all = append(all, d)
	}
	return all
}
