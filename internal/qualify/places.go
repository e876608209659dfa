package qualify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/gpu"
	"caelum/internal/mig"
)

// places creates an instance of each profile at each free start, twice. With all, it includes the variants of profiles
// with other engines. It returns an error if an instance could not be removed.
func (r *run) places(ctx context.Context, c *card, all bool) error {
	began, count, occupied, late := time.Now(), 0, 0, 0
	for _, p := range c.profiles {
		if !all && !mig.Plain(mig.Profile{Name: p.title()}) {
			continue
		}
		for _, start := range p.starts {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case !c.free(start, p.size):
				occupied++
				continue
			case time.Now().After(r.deadline):
				late++
				continue
			}
			one, err := r.place(c, p, start, count == 0)
			if err != nil || one.refused {
				return err
			}
			if !one.made {
				continue
			}
			two, err := r.place(c, p, start, false)
			if err != nil || two.refused {
				return err
			}
			count++
			if !two.made {
				continue
			}
			if one.gi == two.gi {
				r.rep.holds("A3", "each placement had the same id twice")
			} else {
				r.rep.differs("A3", "%s at %d had the ids %d and %d", p.title(), start, one.gi, two.gi)
			}
			if one.uuid != "" && two.uuid != "" {
				if one.uuid == two.uuid {
					r.rep.differs("A17", "the MIG UUID of %s at %d was the same twice", p.title(), start)
				} else {
					r.rep.holds("A17", "each instance had a new UUID of version 5")
				}
			}
			c.facts.placed(p, one.gi, start)
		}
	}
	r.rep.note("GPU %d: %d placements tested twice in %.0f s, %d occupied by other instances, %d left out for time",
		c.index, count, time.Since(began).Seconds(), occupied, late)
	return nil
}

// placed is what a test of a placement found.
type placed struct {
	gi      int
	uuid    string
	made    bool
	refused bool // the driver refuses instances at all, so further placements are of no use
}

// place creates an instance with its compute instance, checks it, and removes both. For the first placement of a GPU,
// it also makes the calls that the driver must refuse.
func (r *run) place(c *card, p profile, start int, first bool) (placed, error) {
	s, ret, err := r.create(c, p, start)
	if err != nil {
		return placed{}, err
	}
	if ret != nvml.SUCCESS {
		return r.notCreated(c, p, start, s, ret)
	}
	r.rep.check(s.Start == start && s.Size == p.size && s.Profile == int(p.info.Id), "A8",
		"the driver used each requested placement%s", where(s, start))
	got := placed{gi: s.GI, made: true}
	if first {
		r.withoutFile(s)
	}
	if err := r.prepare(s); err != nil {
		return got, err
	}
	if got.uuid, err = r.inspect(s); err != nil {
		return got, err
	}
	if first {
		if err := r.refusals(s); err != nil {
			return got, err
		}
	}
	return got, r.destroy(s)
}

// where describes an instance that is not at its start.
func where(s *slice, start int) string {
	if s.Start == start {
		return ""
	}
	return fmt.Sprintf(", except %s, requested at %d", s, start)
}

// notCreated records that the driver did not create an instance at a free placement.
func (r *run) notCreated(c *card, p profile, start int, s *slice, ret nvml.Return) (placed, error) {
	text := nvml.ErrorString(ret)
	c.facts.errors["cgi "+p.title()] = text
	got := placed{refused: true}
	switch {
	case ret == nvml.ERROR_NO_PERMISSION:
		r.rep.differs("A7", "GPU %d: the creation of an instance answered %s", c.index, text)
	case ret == nvml.ERROR_IN_USE:
		r.rep.note("GPU %d is in use: the creation of an instance answered %q; end the programs that use it (DCGM, "+
			"nvidia-smi, monitoring), and run again", c.index, text)
		for _, id := range []string{"A1", "A2", "A3", "A8", "A9", "A10", "A17", "A29"} {
			r.rep.skip(id, "GPU %d is in use by another program", c.index)
		}
	case ret == nvml.ERROR_INSUFFICIENT_RESOURCES && len(c.foreign) > 0:
		got.refused = false // the other instances may have all engines of the kind
	default:
		got.refused = false
		r.rep.differs("A8", "%s at %d, which is free, answered %s", p.title(), start, text)
	}
	if s == nil {
		return got, nil
	}
	r.rep.note("GPU %d: a failed call left an instance (%s), which was removed", c.index, s)
	return got, r.destroy(s)
}

// withoutFile makes a compute instance call before the capability file exists. The answer is only recorded.
func (r *run) withoutFile(s *slice) {
	paths := r.caps.Files(s.c.minor, gpu.Instance{GI: s.GI})
	if _, err := os.Lstat(paths[0]); err == nil {
		return
	}
	info, ret := s.gi.GetComputeInstanceProfileInfo(0, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if ret == nvml.SUCCESS {
		_, ret = s.gi.GetComputeInstances(&info)
	}
	s.c.facts.errors["lci without the capability file"] = nvml.ErrorString(ret)
}

// inspect creates the compute instance and compares what the driver reports about it. It returns the MIG UUID, or "".
func (r *run) inspect(s *slice) (string, error) {
	r.minors(s, -1)
	best, ret, err := r.compute(s)
	if err != nil {
		return "", err
	}
	if ret != nvml.SUCCESS {
		r.rep.differs("A1", "the compute instance of %s answered %s", s, nvml.ErrorString(ret))
		s.c.facts.errors["cci "+s.p.title()] = nvml.ErrorString(ret)
		return "", nil
	}
	if seen, ok := s.c.facts.errors["lci without the capability file"]; ok {
		r.rep.holds("A1", "all compute instances were created; a call without the file answered %s", seen)
	} else {
		r.rep.holds("A1", "all compute instances were created")
	}
	r.rep.check(s.ciID == 0, "A29", "the compute instance ids of full slices are 0%s", unless(s.ciID == 0,
		fmt.Sprintf(", except that of %s, which is %d", s, s.ciID)))
	r.minors(s, s.ciID)
	dev, ordered := s.migDevice()
	if dev == nil {
		r.rep.differs("A17", "the driver lists no MIG device for %s", s)
		return "", nil
	}
	r.rep.check(ordered, "A17", "MIG devices are in the order of their ids%s", unless(ordered, ", but not those of "+
		"GPU "+strconv.Itoa(s.c.index)))
	uuid, _ := dev.GetUUID()
	if err := r.journal.write(entry{N: s.n, Op: opUUID, UUID: uuid}); err != nil {
		return uuid, err
	}
	s.uuid = uuid
	if version := uuidVersion(uuid); version != "5" {
		r.rep.differs("A17", "the MIG UUID of %s has version %q", s, version)
	}
	r.resources(s, dev, best)
	return uuid, nil
}

func unless(ok bool, text string) string {
	if ok {
		return ""
	}
	return text
}

// uuidVersion returns the version of a UUID of the form MIG-xxxxxxxx-xxxx-Vxxx-xxxx-xxxxxxxxxxxx.
func uuidVersion(uuid string) string {
	if parts := strings.Split(uuid, "-"); len(parts) == 6 && parts[3] != "" {
		return parts[3][:1]
	}
	return ""
}

// resources compares the MIG device's SMs and memory with the profile's (A2).
func (r *run) resources(s *slice, dev nvml.Device, ci nvml.ComputeInstanceProfileInfo) {
	a, ret := dev.GetAttributes()
	if ret != nvml.SUCCESS {
		r.rep.skip("A2", "the attributes of a MIG device answered %s", nvml.ErrorString(ret))
		return
	}
	want, memory := s.p.info.MultiprocessorCount, s.p.info.MemorySizeMB
	s.c.facts.resources(s.p.title(), ci.Id, a.MultiprocessorCount, a.MemorySizeMB)
	off := float64(a.MemorySizeMB)/float64(memory) - 1
	switch {
	case a.MultiprocessorCount != want:
		r.rep.differs("A2", "%s has %d of %d SMs, with compute instance profile %d", s.p.title(), a.MultiprocessorCount,
			want, ci.Id)
	case off > memoryTolerance || off < -memoryTolerance:
		r.rep.differs("A2", "%s has %d MiB, and its profile %d MiB", s.p.title(), a.MemorySizeMB, memory)
	default:
		r.rep.holds("A2", "each slice has the SMs and the memory of its profile")
	}
}

// minors compares a capability's minor number in its access file with the formula and with the device file (A4). ci is
// -1 for the GPU instance itself.
func (r *run) minors(s *slice, ci int) {
	in, want, sub := gpu.Instance{GI: s.GI}, formula(s.c.minor, s.GI, ci), ""
	if ci >= 0 {
		in.CIs, sub = []int{ci}, fmt.Sprintf("/ci%d", ci)
	}
	name := fmt.Sprintf("gpu%d/gi%d%s/access", s.c.minor, s.GI, sub)
	path := filepath.Join(r.opt.Proc, "driver/nvidia/capabilities",
		fmt.Sprintf("gpu%d/mig/gi%d%s/access", s.c.minor, s.GI, sub))
	data, err := os.ReadFile(path)
	if err != nil {
		r.rep.differs("A4", "the driver has no %s for a new instance", name)
		return
	}
	got, err := strconv.Atoi(accessField(data, "DeviceFileMinor"))
	if err != nil || got != want {
		r.rep.differs("A4", "the minor number of %s is %d, by the formula %d", name, got, want)
	}
	s.c.facts.caps[name] = got
	files := r.caps.Files(s.c.minor, in)
	for _, f := range files[len(files)-1:] {
		if minor, ok := deviceMinor(f); ok && minor != want {
			r.rep.differs("A4", "the device file of %s has the minor number %d, by the formula %d", name, minor, want)
		}
	}
}

// formula returns the minor number of a GPU instance's or compute instance's capability.
func formula(minor, gi, ci int) int {
	n := 3 + 135*minor + 9*gi
	if ci >= 0 {
		n += 1 + ci
	}
	return n
}

// refusals makes the calls that the driver must refuse while a slice exists (A8, A9, A10).
func (r *run) refusals(s *slice) error {
	c := s.c
	expect := func(id, what string, p profile, start int) error {
		other, ret, err := r.create(c, p, start)
		if err != nil {
			return err
		}
		c.facts.errors[what] = nvml.ErrorString(ret)
		r.rep.check(ret == nvml.ERROR_INSUFFICIENT_RESOURCES, id, "%s answered %s", what, nvml.ErrorString(ret))
		if other != nil {
			return r.destroy(other)
		}
		return nil
	}
	if err := expect("A8", "cgi at an occupied placement", s.p, s.Start); err != nil {
		return err
	}
	if p, start, ok := c.overlapping(s); ok {
		if err := expect("A9", "cgi of another size over an instance", p, start); err != nil {
			return err
		}
	} else {
		r.rep.skip("A9", "GPU %d has no profile of another size", c.index)
	}
	if s.ci == nil {
		return nil
	}
	ret := s.gi.Destroy()
	c.facts.errors["dgi with CI"] = nvml.ErrorString(ret)
	switch ret {
	case nvml.ERROR_IN_USE:
	case nvml.SUCCESS:
		r.rep.differs("A10", "a GPU instance with a compute instance was destroyed")
		delete(c.own, s.GI)
		return r.journal.write(entry{N: s.n, Op: opGone})
	default:
		r.rep.differs("A10", "the destroy of a GPU instance with a compute instance answered %s", nvml.ErrorString(ret))
	}
	return nil
}

// overlapping returns a placement of another size that only the slice s occupies.
func (c *card) overlapping(s *slice) (profile, int, bool) {
	delete(c.own, s.GI)
	defer func() { c.own[s.GI] = s }()
	for _, p := range c.profiles {
		for _, start := range p.starts {
			if p.size != s.Size && s.overlaps(start, p.size) && c.free(start, p.size) {
				return p, start, true
			}
		}
	}
	return profile{}, 0, false
}

// fill creates the largest number of slices, reads them as a health check and a prolog do, and removes them (A17, A22).
func (r *run) fill(ctx context.Context, c *card) error {
	if len(c.profiles) == 0 {
		return nil
	}
	p := c.profiles[0]
	var all []*slice
	for _, start := range p.starts {
		if ctx.Err() != nil || len(all) >= int(p.info.InstanceCount) || !c.free(start, p.size) {
			break
		}
		s, ret, err := r.create(c, p, start)
		if err != nil {
			return err
		}
		if ret != nvml.SUCCESS {
			break
		}
		all = append(all, s)
		if err := r.prepare(s); err != nil {
			return err
		}
		if _, err := r.inspect(s); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		began := time.Now()
		if _, err := c.instances(); err != nil {
			return err
		}
		c.took("health check: list all instances of a full GPU", began)
		began = time.Now()
		if gi, ret := c.dev.GetGpuInstanceById(all[0].GI); ret == nvml.SUCCESS {
			gi.GetInfo()
			(&slice{gi: gi, c: c}).computeInstances()
		}
		c.took("prolog: find a slice again", began)
	}
	for _, s := range all {
		if s.c.own[s.GI] == nil {
			continue
		}
		if err := r.destroy(s); err != nil {
			return err
		}
	}
	return nil
}

// The limits of A22. Published times are 0.1 to 0.3 s for a creation and up to 1 s for a destroy.
const (
	changeLimit = 2 * time.Second
	listLimit   = 500 * time.Millisecond
)

// latencies compares the times of a GPU's calls with the limits (A22).
func (r *run) latencies(c *card) {
	for _, call := range []string{"create GPU instance", "create compute instance", "destroy compute instance",
		"destroy GPU instance", "list GPU instances"} {
		limit := changeLimit
		if strings.HasPrefix(call, "list") {
			limit = listLimit
		}
		if len(c.facts.times[call]) == 0 {
			continue
		}
		t := timing(call, c.facts.times[call])
		r.rep.check(t.Median <= float64(limit.Milliseconds()), "A22", "%s: median %.0f ms, at most %.0f ms", call,
			t.Median, t.Most)
	}
}
