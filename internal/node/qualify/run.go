package qualify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/node/gpu"
	"caelum/internal/node/jobcgroup"
)

// Options describes a run.
type Options struct {
	// Library is the path of libnvidia-ml.so.1, or empty for the linker's search path.
	Library string
	// Dev and Proc are /dev and /proc, and StateDir is the directory of the journal.
	Dev, Proc, StateDir string
	// ReadOnly creates nothing. ModeSwitch permits switching MIG mode off and on again.
	ReadOnly, ModeSwitch bool
	// Fractions holds the number of units of GPUs without MIG whose memory the driver limits, by GRES type. Cgroups
	// describes the node's cgroups, without the controller.
	Fractions map[string]int
	Cgroups   jobcgroup.Options
	// CUDA is the command line of a program that uses a slice for at least 20 s.
	CUDA []string
	// Helper is the command line that runs [Helper]; its arguments are appended.
	Helper []string
	// Modprobe is the path of nvidia-modprobe.
	Modprobe string
	// FabricLimit is the time in which a GPU must join its fabric; 0 means 30 s.
	FabricLimit time.Duration
	// StopAgent, if set, stops the agent. StartAgent starts it again, also if it was an earlier run that stopped it.
	StopAgent, StartAgent func() error
	cuda                  string // the path of libcuda.so.1, or empty for the linker's search path
	// Out receives a line for each thing that an earlier run left.
	Out io.Writer
}

// ErrLeft means that the run could not restore the node. The next run tries again.
var ErrLeft = errors.New("the node is not as it was before; run caelumd qualify again to restore it")

// placesLimit is the time after which no further placement is tested, so that a run takes less than five minutes.
const placesLimit = 3 * time.Minute

// run is the state of a run.
type run struct {
	opt      Options
	caps     gpu.Caps
	lib      library
	journal  *journal
	rep      *Report
	cards    []*card
	limits   *limits // the checks of memory limits, once they have begun
	deadline time.Time
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.opt.Out, format+"\n", args...) }

// Run qualifies the node. The report is nil if nothing was checked. If the error wraps ErrLeft, the node is not
// restored. A cancelled context ends the run after the present call, and Run restores the node.
func Run(ctx context.Context, opt Options) (*Report, error) {
	// The kernel kills helpers when the thread that started them ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if opt.FabricLimit == 0 {
		opt.FabricLimit = fabricLimit
	}
	if len(opt.Helper) == 0 {
		// The kernel finds this program even if the user nobody cannot read its directory.
		opt.Helper = []string{"/proc/self/exe", HelperCommand}
	}
	opt.cuda = cmp.Or(opt.cuda, cudaLibrary)
	r := &run{opt: opt, caps: gpu.Caps{Dev: opt.Dev, Proc: opt.Proc}, lib: open(opt.Library), rep: newReport(),
		deadline: time.Now().Add(placesLimit)}
	if opt.ReadOnly {
		if err := r.openCards(); err != nil {
			return nil, err
		}
		defer r.lib.Shutdown()
		r.static()
		return r.finish(), nil
	}
	j, old, err := openJournal(opt.StateDir)
	if err != nil {
		return nil, err
	}
	r.journal = j
	defer j.file.Close()
	begin, err := r.begin(old)
	if begin.Agent {
		defer func() { // also after an error: an agent that was running runs again
			if e := opt.StartAgent(); e != nil {
				r.say("couldn't start the agent: %v; run `systemctl start caelumd`", e)
			}
		}()
	}
	if err != nil {
		if len(old) == 0 {
			j.remove() // nothing was created
		}
		return nil, err
	}
	defer r.lib.Shutdown()
	r.static()
	checkErr := r.checks(ctx)
	if checkErr == nil {
		checkErr = r.fractions(ctx)
	}
	if err := r.restore(begin); err != nil {
		return r.finish(), errors.Join(ErrLeft, checkErr, err)
	}
	return r.finish(), errors.Join(checkErr, j.remove())
}

// begin stops the agent, undoes what an earlier run left, and writes the first line of this run to the journal.
func (r *run) begin(old []entry) (e entry, err error) {
	e = entry{Op: opBegin, Boot: bootID(), Agent: r.opt.StopAgent != nil}
	if e.Files, err = deviceFiles(r.opt.Dev); err != nil {
		return e, err
	}
	if len(old) > 0 {
		e.Agent = e.Agent || old[0].Agent
	} else if err := r.journal.write(e); err != nil {
		return e, err
	}
	if r.opt.StopAgent != nil {
		if err := r.opt.StopAgent(); err != nil {
			return e, err
		}
	}
	// The driver looks for the files of mig/config and mig/monitor when NVML is opened.
	if err := r.caps.Prepare(); err != nil {
		return e, err
	}
	if err := r.openCards(); err != nil {
		_, undo := restoreFiles(r.opt.Dev, e.Files, nil)
		return e, errors.Join(err, undo)
	}
	if len(old) > 0 {
		if err := r.undo(old); err != nil {
			r.lib.Shutdown()
			return e, errors.Join(ErrLeft, err)
		}
		if e.Files, err = deviceFiles(r.opt.Dev); err != nil {
			return e, err
		}
	}
	e.Instances = map[string][]instance{}
	for _, c := range r.cards {
		if c.pending {
			_, undo := restoreFiles(r.opt.Dev, e.Files, nil)
			return e, errors.Join(fmt.Errorf("GPU %d: a MIG mode change is pending; reset the GPU or reboot the node",
				c.index), undo)
		}
		e.Instances[c.uuid] = c.foreign
	}
	if err := r.journal.write(e); err != nil {
		return e, err
	}
	return e, r.caps.Prepare()
}

// openCards opens NVML and reads the GPUs.
func (r *run) openCards() error {
	if ret := r.lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("couldn't open NVML: %s; check with `nvidia-smi` that the NVIDIA driver is loaded",
			nvml.ErrorString(ret))
	}
	r.rep.Record.Driver, _ = r.lib.SystemGetDriverVersion()
	r.rep.note("driver %s", r.rep.Record.Driver)
	count, ret := r.lib.DeviceGetCount()
	if ret != nvml.SUCCESS || count == 0 {
		r.lib.Shutdown()
		return fmt.Errorf("couldn't count the GPUs: %s", nvml.ErrorString(ret))
	}
	for i := range count {
		c, err := newCard(r.lib, i)
		if err != nil {
			r.lib.Shutdown()
			return err
		}
		r.cards = append(r.cards, c)
	}
	return nil
}

// checks makes the checks that create instances.
func (r *run) checks(ctx context.Context) error {
	var on []*card
	models := map[string]bool{}
	var work sync.WaitGroup
	errs := make([]error, len(r.cards))
	for k, c := range r.cards {
		if !c.mig || len(c.profiles) == 0 {
			continue
		}
		on = append(on, c)
		all := !models[c.name] // the other GPUs of a model are only tested with the profiles that agents offer
		models[c.name] = true
		work.Go(func() {
			if errs[k] = r.places(ctx, c, all); errs[k] == nil {
				errs[k] = r.fill(ctx, c)
			}
		})
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil || len(on) == 0 {
		return err
	}
	for _, check := range []func(*card) error{
		r.access, r.behind, func(c *card) error { return r.program(ctx, c) }, r.unload,
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := check(on[0]); err != nil {
			return err
		}
	}
	switched := map[string]bool{}
	for _, c := range on {
		r.latencies(c)
		if switched[c.name] {
			continue // one GPU of each model, because a switch on Ampere resets the GPU and takes up to 20 s
		}
		if err := r.modes(ctx, c); err != nil {
			return err
		}
		switched[c.name] = len(c.foreign) == 0
	}
	return nil
}

// restore destroys the remaining instances of this run, restores the device files, and compares the instances with
// those at the start.
func (r *run) restore(begin entry) error {
	var errs error
	if r.limits != nil {
		errs = r.limits.close()
	}
	for _, c := range r.cards {
		for _, s := range c.own {
			errs = errors.Join(errs, r.destroy(s))
		}
		if !c.mig {
			continue
		}
		now, err := c.instances()
		errs = errors.Join(errs, err)
		if err == nil && !reflect.DeepEqual(now, c.foreign) {
			r.rep.note("GPU %d: the instances of other programs have changed during the run", c.index)
		}
	}
	keep, err := filesOf(r.caps, r.cards, begin.Instances)
	if err != nil {
		return errors.Join(errs, err)
	}
	_, err = restoreFiles(r.opt.Dev, begin.Files, keep)
	return errors.Join(errs, err)
}

// finish computes the report.
func (r *run) finish() *Report {
	for _, c := range r.cards {
		r.rep.record(c)
	}
	r.rep.finish(r.opt.ReadOnly)
	return r.rep
}
