package agent

import (
	"maps"
	"slices"
	"strings"

	"caelum/internal/gpu"
	"caelum/internal/ledger"
	"caelum/internal/slurm"
)

// Profiles' names and memory sizes drift with the driver's release (a GB200 has 1g.23gb under one and 1g.24gb under
// another). The driver's name of this moment counts: what the ledger has under another is renamed when the agent
// starts, and what slurm.conf has under another is said aloud until somebody corrects it.

// adoptInstances puts the ledger's instances of a GPU among the agent's own, by the names that the driver has for them
// now. One that is not on the GPU any more under a name that it does not know is forgotten.
func (a *Agent) adoptInstances(g int, c *card, held []ledger.Instance) error {
	found, err := a.hw.Instances(g)
	if err != nil { // a GPU that is lost: look says so
		a.log.WithError(err).WithField("gpu", g).Error("couldn't list the instances")
	}
	for _, in := range held {
		if i := slices.IndexFunc(found, func(f gpu.Instance) bool {
			return f.GI == in.GI && f.Start == in.Start && f.Size == in.Size && f.UUID == in.UUID
		}); i >= 0 && found[i].Profile != in.Profile {
			a.log.WithField("gpu", g).
				WithField("uuid", in.UUID).
				Warnf("the driver calls %s at %d %s now", in.Profile, in.Start, found[i].Profile)
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

// gone forgets an instance that is not on its GPU any more.
func (a *Agent) gone(g int, c *card, in ledger.Instance) error {
	log := a.log.WithField("gpu", g).WithField("uuid", in.UUID)
	if in.Job != 0 {
		log.WithField("job", in.Job).
			Errorf("%s at %d was removed by somebody else while the job held it; the job will fail", in.Profile, in.Start)
	} else {
		log.Warnf("%s at %d was removed by somebody else", in.Profile, in.Start)
	}
	return a.ledger.Forget(c.UUID, in.GI)
}

// renameLeases gives the slices of the leases the names and sizes of their instances. slurmctld goes on counting them
// as what they were called.
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

// reported are the names of all profiles that the driver reports, whether they are put on offer or not; none where a
// GPU is not managed, since they may be its own. The caller holds a.mu.
func (a *Agent) reported() map[string]bool {
	all := map[string]bool{}
	for _, c := range a.cards {
		if c.Problem != "" {
			return nil
		}
		for _, p := range c.Model.Profiles {
			all[p.Name] = true
		}
	}
	return all
}

// recordAdvertised notes the names of other GPU models' profiles that the node puts something on offer as: slurmctld
// shows them from then on, with 0 as a rule, like those of slurm.conf.
func (a *Agent) recordAdvertised(offers map[string]int) error {
	before := len(a.lent)
	for name := range offers {
		if !slices.Contains(a.profiles, name) && !slices.Contains(a.lent, name) {
			a.lent = append(a.lent, name)
		}
	}
	if len(a.lent) == before {
		return nil
	}
	slices.Sort(a.lent)
	return a.ledger.SetMeta("lent", strings.Join(a.lent, " "))
}

// noteStale finds the profiles that slurm.conf gives this node and its driver does not report. They stay at 0: a job
// that asks for one waits for ever, since the catalogue has it.
func (a *Agent) noteStale(node slurm.Node) {
	a.mu.Lock()
	reported := a.reported()
	var stale []string
	for _, profile := range slices.Sorted(maps.Keys(count(node.Gres))) {
		if len(reported) > 0 && profile != slurm.ClosedType && !reported[profile] && !slices.Contains(a.lent, profile) {
			stale = append(stale, profile)
		}
	}
	changed := !slices.Equal(stale, a.stale)
	a.stale = stale
	a.mu.Unlock()
	if changed && len(stale) > 0 {
		a.log.Errorf(
			"slurm.conf gives %s %s, which its driver does not report (it has %s): jobs that ask for that wait for ever; run `caelum slurm-config` again and put its lines into slurm.conf and the decision table",
			a.cfg.Node,
			strings.Join(stale, ", "),
			strings.Join(a.profiles, ", "),
		)
	}
}
