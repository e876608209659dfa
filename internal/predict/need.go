package predict

import (
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
	// Margin is what is added to the highest peak, as a share of it.
	Margin float64
	// Share: other users' runs of the same script count for those who have none.
	Share bool
	// MaxSlowdown is how much longer than on the whole GPU a job may run, at most, as a factor; 0: memory alone decides.
	MaxSlowdown float64
}

// DefaultSite is in force where nobody has decided.
var DefaultSite = Site{Margin: 0.1}

// History is the runs of one piece of work, oldest first, and whose they are.
type History struct {
	Level Level
	Runs  []Run
}

// Need is what a job is predicted to need.
type Need struct {
	Level Level
	Runs  int // that it rests on
	// PeakMiB is the memory that it needs of one slice, margin included; HighestMiB the most that was seen.
	PeakMiB, HighestMiB float64
	// Seconds is how long it is expected to run on what it would be given, Low and High the 10% and 90% quantiles; 0: not known.
	Seconds, Low, High float64
	// Why says which runs, which quantile and which margin, in one sentence.
	Why string
}

// Predict says what a job needs by its history; false: the history says nothing, and the site's default stands.
func Predict(h History, site Site) (Need, bool) {
	n := Need{Level: h.Level}
	for _, r := range h.Runs {
		if r.Samples == 0 || r.State != "COMPLETED" {
			continue
		}
		n.Runs++
		n.HighestMiB = max(n.HighestMiB, r.PeakMiB)
	}
	n.PeakMiB = n.HighestMiB * (1 + site.Margin)
	return n, n.Runs > 0
}

// On is the tightest profile of a board that holds what a job needs, of those of which a placement is in of; false: none does.
func (n Need) On(b *mig.Board, of mig.Layout) (string, bool) {
	best := -1
	for k := range b.Profiles {
		p := &b.Profiles[k]
		if b.OfProfile(k)&of == 0 || p.Memory() < n.PeakMiB {
			continue
		}
		if best < 0 || p.Size < b.Profiles[best].Size || p.Size == b.Profiles[best].Size && p.Compute < b.Profiles[best].Compute {
			best = k
		}
	}
	if best < 0 {
		return "", false
	}
	return b.Profiles[best].Name, true
}
