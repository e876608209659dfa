package qualify

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/node/gpu"
)

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
	data, err := os.ReadFile(r.accessPath(s, ci))
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
	if minor, ok := deviceMinor(files[len(files)-1]); ok && minor != want {
		r.rep.differs("A4", "the device file of %s has the minor number %d, by the formula %d", name, minor, want)
	}
}

// accessPath returns the path of the access file of a slice's compute instance, or of its GPU instance if ci is -1.
func (r *run) accessPath(s *slice, ci int) string {
	dir := filepath.Join(r.opt.Proc, "driver/nvidia/capabilities", fmt.Sprintf("gpu%d/mig/gi%d", s.c.minor, s.GI))
	if ci >= 0 {
		dir = filepath.Join(dir, fmt.Sprintf("ci%d", ci))
	}
	return filepath.Join(dir, "access")
}

// formula returns the minor number of a GPU instance's or compute instance's capability.
func formula(minor, gi, ci int) int {
	n := 3 + 135*minor + 9*gi
	if ci >= 0 {
		n += 1 + ci
	}
	return n
}
