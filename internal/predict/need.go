package predict

import (
	"cmp"

	"caelum/internal/mig"
)

// Level says whose runs a prediction rests on.
type Level string

const (
	Unknown Level = ""     // nobody's: the site's default
	ByKey   Level = "key"  // the same work
	ByUser  Level = "user" // the same user's runs of the same script, under another name or account
	BySite  Level = "site" // anybody's runs of the same script
)

// Site is what a site has decided.
type Site struct {
	// Margin is what is added to the highest peak of work of which one run is known, as a share of it, and the most
	// that is ever added.
	Margin float64
	// Share: other users' runs of the same script count for those who have none.
	Share bool
	// Users is how many users must have a complete run of a script before their runs count for others; 0: 3.
	Users int
	// MaxSlowdown is how much longer than on the whole GPU a job may run, at most, as a factor; 0: memory alone
	// decides.
	MaxSlowdown float64

	// Window is how many complete runs count, twice as many for work that was killed for memory, and Quantile which of
	// the changes between them makes the margin; 0: 5 and 0.15.
	Window   int
	Quantile float64
}

// DefaultSite is in force where nobody has decided.
var DefaultSite = Site{Margin: 0.05, Users: 3}

func (s Site) window() int       { return cmp.Or(s.Window, 5) }
func (s Site) quantile() float64 { return cmp.Or(s.Quantile, 0.15) }

// History is the runs of one piece of work, oldest first, and whose they are.
type History struct {
	Level Level
	Runs  []Run
}

// Need is what a job is predicted to need.
type Need struct {
	Level Level
	Runs  int // complete ones that it rests on
	// PeakMiB is the memory that it needs of one slice, margin included; HighestMiB without it, which some run has had
	// in use.
	PeakMiB, HighestMiB float64
	// Seconds is how long it is expected to run on a slice with so many Compute slices, Low and High the 10% and 90%
	// quantiles; 0: not known.
	Seconds, Low, High float64
	Compute            int
	// Busy is the share of its time on a single compute slice for which it would keep that busy, from 0 to 1; -1: not
	// known.
	Busy float64
	// MaxSlowdown is the site's. Limit is a time limit in seconds that others of its runs ran into, 0: none did; who
	// knows its own puts that here.
	MaxSlowdown, Limit float64
	// Why says what PeakMiB rests on, in one sentence.
	Why string
}

// Predict says what a job needs by its history. False: no run was complete, so that none says how little is enough, and
// the site's default stands; what was seen or was too little is in PeakMiB all the same, for [Need.AtLeast].
func Predict(h History, site Site) (Need, bool) {
	all := attempts(h.Runs)
	window := site.window()
	if proved(all) {
		window *= 2
	}
	past := since(all, timeWindow)
	n := Need{Level: h.Level, Busy: busy(past), MaxSlowdown: site.MaxSlowdown, Limit: limit(past)}
	n.memory(since(all, window), site)
	n.time(past)
	return n, n.Runs > 0
}

// On is the tightest profile of a GPU model that holds what a job needs, of those of which a placement is in of; false:
// none does. Where no profile of the GPU model has room for the margin, the one with the most memory will do if it
// holds what was seen.
func (n Need) On(b *mig.Model, of mig.Layout) (string, bool) {
	most := 0.0
	for k := range b.Profiles {
		most = max(most, b.Profiles[k].Memory())
	}
	need := min(n.PeakMiB, max(most, n.HighestMiB))
	var best *mig.Profile
	for k := range b.Profiles {
		p := &b.Profiles[k]
		if b.OfProfile(k)&of == 0 || p.Memory() < need || !n.fast(p.Compute, b.Compute()) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(p.Size, best.Size), cmp.Compare(p.Compute, best.Compute)) < 0 {
			best = p
		}
	}
	if best == nil {
		return "", false
	}
	return best.Name, true
}

// AtLeast is this profile of a GPU model, or the one that On names where that has more memory: for a job of whose work
// no run was complete.
func (n Need) AtLeast(b *mig.Model, of mig.Layout, profile string) string {
	more, ok := n.On(b, of)
	if !ok {
		return profile
	}
	k, _ := b.ProfileIndex(more)
	if p, known := b.ProfileIndex(profile); known && b.Profiles[p].Memory() >= b.Profiles[k].Memory() {
		return profile
	}
	return more
}
