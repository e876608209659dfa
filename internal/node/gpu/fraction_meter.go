package gpu

import (
	"errors"
	"fmt"
	"path/filepath"

	"caelum/internal/core/mig"
	"caelum/internal/node/jobcgroup"
)

// Meter implements Hardware.
func (f *Fractions) Meter(gpu int, in Instance) (Meter, error) {
	d, _ := f.fraction(gpu, in.GI)
	if d == nil {
		return f.Hardware.Meter(gpu, in)
	}
	whole, err := f.Hardware.Meter(gpu, Instance{GI: FullGI, Profile: mig.Full, UUID: d.uuid})
	return &fractionMeter{f, gpu, in, whole}, err
}

// fractionMeter reads the usage of an instance of a GPU with fractions.
type fractionMeter struct {
	f     *Fractions
	gpu   int
	in    Instance
	whole Meter
}

// Close implements Meter.
func (m *fractionMeter) Close() { m.whole.Close() }

// Read implements Meter. It sets the limit again if another program has removed it.
func (m *fractionMeter) Read() (Use, error) {
	d, h := m.f.fraction(m.gpu, m.in.GI)
	if h == nil || h.UUID != m.in.UUID {
		return Use{}, fmt.Errorf("%s at %d: %w", m.in.Profile, m.in.Start, ErrNotFound)
	}
	all, err := m.whole.Read()
	if err != nil {
		return Use{}, err
	}
	job := h.job
	use := Use{Util: -1, Processes: -1}
	if m.in.GI == FullGI {
		use.MemoryMiB, use.Util = all.MemoryMiB, all.Util
	}
	measured := 0.0 // MiB
	for k, pid := range all.PIDs {
		if !m.f.has(pid, job) {
			use.Others = append(use.Others, pid)
			continue
		}
		use.PIDs, use.ProcessMiB = append(use.PIDs, pid), append(use.ProcessMiB, all.ProcessMiB[k])
		measured += max(all.ProcessMiB[k], 0)
	}
	if all.Processes >= 0 {
		use.Processes = len(use.PIDs)
	}
	if job.Path != "" && m.in.GI != FullGI {
		m.check(&use, d, job, measured)
	}
	return use, nil
}

// check sets the memory that the driver counts for the job in MiB, and the reason why the job's memory is not
// limited as it should be. measured is the memory of the job's processes in MiB, according to the driver. It exceeds
// the limit if a process uses memory that the driver has not charged to the cgroup.
func (m *fractionMeter) check(use *Use, d *divided, job jobcgroup.Group, measured float64) {
	d.resizing.Lock()
	defer d.resizing.Unlock()
	_, h := m.f.fraction(m.gpu, m.in.GI)
	if h == nil || h.job != job {
		return // the job has released the instance since the sample was taken
	}
	want := d.limit(h.Instance)
	_, used, err := m.f.Limits.Limit(m.gpu, job.Path)
	use.MemoryMiB = max(float64(used)/(1<<20), measured)
	if err = errors.Join(err, m.f.Groups.Check(job)); err == nil {
		err = m.f.limited(m.gpu, job, want)
	}
	if err != nil && m.f.restore(m.gpu, m.in.GI, job) == nil {
		err, use.Restored = nil, true
	}
	switch limit := float64(want) / (1 << 20); {
	case err != nil:
		use.Unlimited = "its memory is not limited: " + err.Error()
	case use.MemoryMiB > limit+LimitSlackMiB:
		use.Overused = true
		use.Unlimited = fmt.Sprintf("it used %.0f MiB, its fraction %s has %.0f MiB, and its programs evaded "+
			"the limit", use.MemoryMiB, h.Profile, limit)
	}
}

// restore sets a limit again which another program has removed, for example systemd together with the controller. If
// the job's cgroup is gone, it leaves no other behind.
func (f *Fractions) restore(gpu, gi int, job jobcgroup.Group) error {
	d, _ := f.fraction(gpu, gi)
	d.changes.Lock()
	defer d.changes.Unlock()
	if _, h := f.fraction(gpu, gi); h == nil || h.job != job {
		return errors.New("the job has ended")
	}
	if err := f.repairGroup(job); err != nil {
		return err
	}
	return f.setLimit(gpu, gi, job)
}

// repairGroup enables the controller in a job's cgroup again.
func (f *Fractions) repairGroup(job jobcgroup.Group) error {
	f.repairs.Lock()
	defer f.repairs.Unlock()
	made, err := f.Groups.Make(filepath.Base(job.Path))
	if err == nil && made != job {
		err = errors.Join(errors.New("the job's cgroup was replaced"), f.Groups.Remove(made))
	}
	return err
}

// LimitSlackMiB is the memory in MiB by which the memory of a job's processes may exceed the job's limit. The driver
// counts a process's memory in steps of at most 2 MiB, its largest page.
const LimitSlackMiB = 64
