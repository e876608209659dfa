package publish

import (
	"maps"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// The names and memory sizes of profiles depend on the driver release. For example, the same profile of the GB200 is
// called 1g.23gb by one release and 1g.24gb by another. The agent uses the names that the installed driver reports.
// When it starts, it updates the profile names of the instances in the ledger. If slurm.conf lists a profile that the
// driver does not report, the agent logs the profile and shows it in `caelum status`.

// recordAdvertised records in the ledger the profile names of other GPU models under which the node has offered slices.
// Once the node has used one of these names, slurmctld keeps listing it like the names in slurm.conf, usually with a
// count of 0.
func (p *Publisher) recordAdvertised(offers map[string]int) error {
	before := len(p.advertised)
	for name := range offers {
		if !slices.Contains(p.Node.Profiles, name) && !slices.Contains(p.advertised, name) {
			p.advertised = append(p.advertised, name)
		}
	}
	if len(p.advertised) == before {
		return nil
	}
	slices.Sort(p.advertised)
	return p.Ledger.SetMeta("lent", strings.Join(p.advertised, " "))
}

// noteStale finds the profiles that slurm.conf lists for this node but that the driver does not report. The agent
// publishes a count of 0 for these stale profiles. slurmctld accepts jobs that request them, because they are in the
// catalogue, but never starts them on this node.
func (p *Publisher) noteStale(node slurm.Node) {
	p.Node.Lock()
	reported := p.Node.Reported()
	var stale []string
	for _, profile := range slices.Sorted(maps.Keys(node.Gres.Profiles())) {
		if len(reported) > 0 && profile != slurm.ClosedType && !reported[profile] &&
			!slices.Contains(p.advertised, profile) {
			stale = append(stale, profile)
		}
	}
	p.Node.Unlock()
	changed := !slices.Equal(stale, p.status.Stale)
	p.set(func(s *Status) { s.Stale = stale })
	if changed && len(stale) > 0 {
		p.Log.Errorf(
			"slurm.conf gives %s the profiles %s, which the node's driver does not report (it reports %s): jobs that "+
				"request these profiles stay pending; run `caelum slurm-config` again and put its lines into "+
				"slurm.conf and the decision table",
			p.Config.Node,
			strings.Join(stale, ", "),
			strings.Join(p.Node.Profiles, ", "),
		)
	}
}
