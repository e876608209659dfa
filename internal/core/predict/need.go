package predict

import (
	"cmp"

	"caelum/internal/core/mig"
)

// Level identifies the set of runs on which a prediction is based.
type Level string

const (
	Unknown Level = ""      // no runs exist, and the site's default applies
	ByArgs  Level = "args"  // runs with the same key, related to a number in the arguments of the job's script
	ByKey   Level = "key"   // runs with the same key
	ByUser  Level = "user"  // runs of the same script by the same user, with another job name or account
	BySite  Level = "site"  // runs of the same script by all users
	ByName  Level = "name"  // the same user's runs of other scripts under the same job name
	ByOwner Level = "owner" // all of the same user's runs
)

// Levels lists the levels at which a job can have runs, from the most specific to the most general. A prediction uses
// the first level with suitable runs. ByArgs is not among them, because its runs are those of ByKey.
var Levels = []Level{ByKey, ByUser, BySite, ByName, ByOwner}

// Site holds a site's settings.
type Site struct {
	// Margin is the safety margin, as a fraction of the peak, if only one run is known. If more runs are known, it is
	// the upper bound of the safety margin.
	Margin float64
	// Share enables predictions from other users' runs of the same script for users who have not run the script
	// themselves.
	Share bool
	// Users is the number of users who must have a complete run of a script before their runs are used for others. 0
	// means 3.
	Users int
	// MaxSlowdown is the longest acceptable run time of a job, as a multiple of its run time on the whole GPU. If it is
	// 0, the profile is determined from the memory alone.
	MaxSlowdown float64

	// Window is the number of complete runs that a prediction uses. It uses twice this number if a run is known to have
	// run out of memory. The margin is computed from the Quantile of the changes in the peak between these runs. If
	// these fields are 0, Window defaults to 5 and Quantile to 0.15.
	Window   int
	Quantile float64

	// PeakQuantile is the quantile of the next run's peak that the need must cover, assuming that peaks are lognormally
	// distributed. If it is 0, the need does not depend on a quantile.
	PeakQuantile float64

	// FirstRunQuantile is the quantile of the peak of a script's first run that the need must cover, if it is predicted
	// from the user's other scripts. If it is 0, a script without runs has no prediction.
	FirstRunQuantile float64
}

// DefaultSite holds the default settings.
var DefaultSite = Site{Margin: 0.05, Users: 3, MaxSlowdown: 3, FirstRunQuantile: 0.94}

func (s Site) window() int       { return cmp.Or(s.Window, 5) }
func (s Site) quantile() float64 { return cmp.Or(s.Quantile, 0.15) }

// History holds the runs of one key or script, oldest first, and the user who owns them.
type History struct {
	Level Level
	Runs  []Run
}

// Need is the predicted need of a job.
type Need struct {
	Level Level
	Runs  int // the number of complete runs on which the need is based
	// PeakMiB is the memory that the job needs on each slice, including the margin. HighestMiB is this memory without
	// the margin.
	PeakMiB, HighestMiB float64
	// Seconds is the expected run time on a slice with Compute compute slices, or 0 if unknown. Low and High are the
	// 10% and 90% quantiles of the run time.
	Seconds, Low, High float64
	Compute            int
	// Ended is true if Seconds, Low and High come from runs that ended by themselves, and false if all runs reached
	// their time limit. A job that always reaches its time limit does not end sooner on a larger slice.
	Ended bool
	// Busy is the fraction of its run time on one compute slice during which the job would keep that slice busy, from 0
	// to 1. BusyKnown is false if no run shows this fraction, in which case Busy is only an assumption that applies to
	// any job.
	Busy      float64
	BusyKnown bool
	// MaxSlowdown is copied from the site's settings. Limit is a time limit, in seconds, that an earlier run of the job
	// reached, or 0. Line.InTime takes a submission's own time limit into account.
	MaxSlowdown, Limit float64
	// Why explains PeakMiB in one sentence.
	Why string
}

// Predict returns the need of a job according to its history. The second result is false if no run was complete. It is
// then unknown how much memory is sufficient, so the caller uses the site's default, and PeakMiB is a lower bound for
// [Need.AtLeast]: the amount of memory that a run used or that was not sufficient.
func Predict(h History, site Site) (Need, bool) {
	all := attempts(h.Runs)
	past := since(all, timeWindow)
	n := Need{Level: h.Level, MaxSlowdown: site.MaxSlowdown, Limit: limit(past)}
	n.Busy, n.BusyKnown = busy(past)
	n.memory(all, site)
	n.time(past)
	return n, n.Runs > 0
}

// On returns the smallest profile of a GPU model that satisfies the need. It considers only profiles that have a
// placement in the given layout and returns false if none of them is sufficient. If no profile has enough memory for
// the need including the margin, the profile with the most memory counts as sufficient if it has at least HighestMiB.
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

// AtLeast returns On's profile if it has more memory than the given profile, and the given profile otherwise. It is
// used for jobs without complete runs.
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
