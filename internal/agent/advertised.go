package agent

import (
	"maps"
	"slices"
	"strings"

	"caelum/internal/gpu"
	"caelum/internal/ledger"
	"caelum/internal/slurm"
)

// The names and memory sizes of profiles depend on the driver release. For example, the same profile of the GB200 is
// called 1g.23gb by one release and 1g.24gb by another. The agent uses the names that the installed driver reports.
// When it starts, it updates the profile names of the instances in the ledger. If slurm.conf lists a profile that the
// driver does not report, the agent logs the profile and shows it in `caelum status`.

// adoptInstances loads a GPU's instances from the ledger and changes their profile names to those that the driver
// reports. It removes from the ledger any instance that is no longer on the GPU and whose profile the driver does not
// report.
func (a *Agent) adoptInstances(g int, c *card, held []ledger.Instance) error {
	found, err := a.hw.Instances(g)
	if err != nil { // the GPU is lost; compareGPUs reports this
		a.log.WithError(err).WithField("gpu", g).Error("couldn't list the instances")
	}
	for _, in := range held {
		if i := slices.IndexFunc(found, func(f gpu.Instance) bool {
			return f.GI == in.GI && f.Start == in.Start && f.Size == in.Size && f.UUID == in.UUID
		}); i >= 0 && found[i].Profile != in.Profile {
			a.log.WithField("gpu", g).
				WithField("uuid", in.UUID).
				Warnf("the driver now reports %s at %d as %s", in.Profile, in.Start, found[i].Profile)
			in.Profile = found[i].Profile
		}
		if p, ok := c.Model.Placement(in.Profile, in.Start); ok {
			c.ours[p] = &instance{Instance: in}
		} else if err == nil {
			if err := a.gone(g, c, in); err != nil {
				return err
			}
		}
	}
	return nil
}

// gone logs that an instance is no longer on its GPU, and removes it from the ledger.
func (a *Agent) gone(g int, c *card, in ledger.Instance) error {
	log := a.log.WithField("gpu", g).WithField("uuid", in.UUID)
	if in.Job != 0 {
		log.WithField("job", in.Job).
			Errorf("%s at %d was removed by another program while the job held it; the job will fail",
				in.Profile, in.Start)
	} else {
		log.Warnf("%s at %d was removed by another program", in.Profile, in.Start)
	}
	return a.ledger.Forget(c.UUID, in.GI)
}

// renameLeases updates the profile and memory of each leased slice from its instance. AdvertisedAs keeps the earlier
// profile name, because slurmctld still counts the slice under that name.
func (a *Agent) renameLeases() {
	for _, l := range a.leases {
		for i := range l.Slices {
			s := &l.Slices[i]
			if s.GPU >= len(a.cards) {
				continue
			}
			for p, in := range a.cards[s.GPU].ours {
				if in.UUID == s.UUID {
					b := a.cards[s.GPU].Model
					if s.AdvertisedAs == "" && s.Profile != in.Profile {
						s.AdvertisedAs = s.Profile
					}
					s.Profile, s.MemoryMiB = in.Profile, b.Profiles[b.Placements[p].Profile].MemoryMiB
				}
			}
		}
	}
}

// reported returns the names of all profiles that the driver reports, including those that the agent does not offer. If
// the agent does not manage all GPUs, it returns nil, because the profiles of the other GPUs are unknown. The caller
// holds n.mu.
func (n *node) reported() map[string]bool {
	all := map[string]bool{}
	for _, c := range n.cards {
		if c.Problem != "" {
			return nil
		}
		for _, p := range c.Model.Profiles {
			all[p.Name] = true
		}
	}
	return all
}

// recordAdvertised records in the ledger the profile names of other GPU models under which the node has offered slices.
// Once the node has used one of these names, slurmctld keeps listing it like the names in slurm.conf, usually with a
// count of 0.
func (p *publisher) recordAdvertised(offers map[string]int) error {
	before := len(p.advertised)
	for name := range offers {
		if !slices.Contains(p.profiles, name) && !slices.Contains(p.advertised, name) {
			p.advertised = append(p.advertised, name)
		}
	}
	if len(p.advertised) == before {
		return nil
	}
	slices.Sort(p.advertised)
	return p.ledger.SetMeta("lent", strings.Join(p.advertised, " "))
}

// noteStale finds the profiles that slurm.conf lists for this node but that the driver does not report. The agent
// publishes a count of 0 for these stale profiles. slurmctld accepts jobs that request them, because they are in the
// catalogue, but never starts them on this node.
func (p *publisher) noteStale(node slurm.Node) {
	p.mu.Lock()
	reported := p.reported()
	var stale []string
	for _, profile := range slices.Sorted(maps.Keys(node.Gres.Profiles())) {
		if len(reported) > 0 && profile != slurm.ClosedType && !reported[profile] &&
			!slices.Contains(p.advertised, profile) {
			stale = append(stale, profile)
		}
	}
	p.mu.Unlock()
	changed := !slices.Equal(stale, p.status.stale)
	p.set(func(s *publishStatus) { s.stale = stale })
	if changed && len(stale) > 0 {
		p.log.Errorf(
			"slurm.conf gives %s the profiles %s, which the node's driver does not report (it reports %s): jobs that "+
				"request these profiles stay pending; run `caelum slurm-config` again and put its lines into "+
				"slurm.conf and the decision table",
			p.cfg.Node,
			strings.Join(stale, ", "),
			strings.Join(p.profiles, ", "),
		)
	}
}
