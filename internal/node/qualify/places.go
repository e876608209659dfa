package qualify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"caelum/internal/core/mig"
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
