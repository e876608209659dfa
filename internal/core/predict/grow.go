package predict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
)

// Growth is the replacement of a job's profile with a larger one after the job has already started.
type Growth struct {
	Profile string `json:"profile"` // the profile that was too small
	Cause   Cause  `json:"cause"`
	// MiB is the run's peak memory on Profile, in MiB: the observed peak (RanOutOfMemory) or the forecast (Foreseen).
	MiB float64 `json:"mib"`
	// Requested is the profile in the job's request if it differs from Profile, for example because the job ran on an
	// equivalent profile of another GPU model. Otherwise, it is empty.
	Requested string `json:"requested,omitempty"`
}

// Cause is the reason for a Growth.
type Cause string

const (
	RanOutOfMemory Cause = "oom"      // the run ran out of memory
	Foreseen       Cause = "forecast" // the forecast of the run's peak exceeded the memory of the slice
)

// String formats the growth without spaces or commas: the profile, the cause, the peak in MiB, and the requested
// profile if it differs. Examples are 1g.5gb:oom:4711 and 1g.10gb:oom:9012:1g.5gb.
func (g Growth) String() string {
	text := fmt.Sprintf("%s:%s:%.0f", g.Profile, g.Cause, g.MiB)
	if g.Requested != "" {
		text += ":" + g.Requested
	}
	return text
}

// FormatGrowths formats growths, without spaces, in the form that ParseGrowths parses.
func FormatGrowths(growths []Growth) string {
	var all []string
	for _, g := range growths {
		all = append(all, g.String())
	}
	return strings.Join(all, ",")
}

// ParseGrowths parses the output of FormatGrowths, ignoring malformed growths.
func ParseGrowths(text string) (growths []Growth) {
	for one := range strings.SplitSeq(text, ",") {
		parts := strings.Split(one, ":")
		if len(parts) == 3 {
			parts = append(parts, "")
		} else if len(parts) != 4 || parts[3] == "" {
			continue
		}
		g := Growth{Profile: parts[0], Cause: Cause(parts[1]), Requested: parts[3]}
		mib, err := strconv.ParseUint(parts[2], 10, 40)
		if err != nil || g.Profile == "" || g.Cause != RanOutOfMemory && g.Cause != Foreseen {
			continue
		}
		g.MiB = float64(mib)
		growths = append(growths, g)
	}
	return growths
}

// Larger returns the smallest profile of m that has more memory than the given profile, at least as many compute
// slices, and at least needMiB of memory. It considers only profiles that have a placement in the given layout, and the
// full profile (mig.Full) only on a GPU with fractions. It returns false if m has no suitable larger profile, or does
// not have the given profile.
func Larger(m *mig.Model, of mig.Layout, profile string, needMiB float64) (larger string, ok bool) {
	from, known := m.ProfileIndex(profile)
	if !known {
		return "", false
	}
	now, best := &m.Profiles[from], (*mig.Profile)(nil)
	for k := range m.Profiles {
		p := &m.Profiles[k]
		if p.Name == mig.Full && m.Fractions == 0 || m.OfProfile(k)&of == 0 || p.Compute < now.Compute ||
			p.Memory() <= now.Memory() || p.Memory() < needMiB {
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

// Larger returns the result of [Larger] for this need. If no profile has enough memory to cover the need including the
// margin, a profile that covers the need without the margin is sufficient.
func (n Need) Larger(m *mig.Model, of mig.Layout, profile string) (larger string, ok bool) {
	if larger, ok = Larger(m, of, profile, n.PeakMiB); ok {
		return larger, true
	}
	return Larger(m, of, profile, n.HighestMiB)
}

// RanOut reports whether the last of the runs (oldest first) ran out of memory, and returns the need of the next run.
// The runs are all known runs with one job key, and the last one must be in the FAILED state. grown lists the job's
// growths so far, oldest first. Unless the run itself reported that it ran out of memory (Run.End), RanOut returns
// false if the peak fits into an earlier, smaller slice of the job, or if complete runs with at least this peak fitted
// into a slice of this size. It is stricter than Predict, because a needless requeue repeats an entire run.
func RanOut(runs []Run, grown []Growth, site Site) (Need, bool) {
	if len(runs) == 0 || runs[len(runs)-1].State != "FAILED" && runs[len(runs)-1].End == "" {
		return Need{}, false
	}
	last := runs[len(runs)-1]
	same := func(r Run) bool { return r.Job == last.Job && r.Restart == last.Restart }
	for _, a := range attempts(runs) {
		if !same(a.Run) || !a.short {
			continue
		}
		for _, g := range grown {
			if a.End == "" && a.PeakMiB <= usable*(Run{Profile: g.Profile}).promised() {
				return Need{}, false
			}
		}
		if a.End == "" && a.usual(slices.DeleteFunc(slices.Clone(runs), same), site) {
			return Need{}, false
		}
		need, _ := Predict(History{Level: ByKey, Runs: runs}, site)
		return need, true
	}
	return Need{}, false
}

// usual reports whether a run's memory was sufficient according to the earlier runs with its job key (oldest first):
// the complete runs fitted into a slice of this size, and the run has not used more memory than they did.
func (r Run) usual(earlier []Run, site Site) bool {
	need, known := Predict(History{Level: ByKey, Runs: earlier}, site)
	return known && r.PeakMiB <= need.HighestMiB && need.HighestMiB <= usable*r.promised()
}

// Foresaw returns the need of a job whose current run is expected to use foreseenMiB of memory. earlier lists the
// earlier runs with the job's key, oldest first. If they contradict the forecast, Foresaw returns false.
func Foresaw(earlier []Run, current Run, foreseenMiB float64, site Site) (Need, bool) {
	if current.usual(earlier, site) {
		return Need{}, false
	}
	return Need{PeakMiB: foreseenMiB, HighestMiB: foreseenMiB}, true
}
