package predict

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Line is the prediction in a line of the decision table.
type Line struct {
	Profile string // the job's profile, regardless of its time limit
	Seconds int    // expected run time on Profile; 0 if unknown
	High    int    // 90% quantile of the run time on Profile in seconds; 0 if unknown or if Seconds is 0
	// Busy is the job's busy share in percent, or -1 if unknown.
	Busy int
}

// unknownPercent is UnknownBusy in percent.
const unknownPercent = 100 * (priorExponent + 1) / (priorExponent + 2)

// InTime returns the profile that a job with the given time limit, in seconds, requests. floor is the profile that it
// would request without a time limit, and profiles lists the profiles that it may request instead. The result is floor,
// or a profile whose name has more compute slices than floor's and at least as much memory:
//
//   - the smallest such profile on which the 90% quantile of the run time does not exceed the time limit;
//   - otherwise the fastest such profile, if the expected run time on it does not exceed the time limit;
//   - otherwise floor, because the job would reach the time limit on every profile.
//
// The result is also floor if the quantile or the time limit is unknown. job_submit.lua implements the same choice.
// For profiles with up to 7 compute slices, both implementations use only whole numbers below 2^53, so rounding cannot
// cause different results.
func (l Line) InTime(floor string, profiles []string, limit float64) string {
	compute, gb := claims(floor)
	own, _ := claims(l.Profile)
	if own == 0 || compute == 0 || l.High <= 0 || !(limit > 0) || l.within(floor, l.High, limit) {
		return floor
	}
	best, fastest := "", ""
	for _, name := range profiles {
		c, m := claims(name)
		if c <= compute || m < gb {
			continue
		}
		if l.within(name, l.High, limit) && (best == "" || smaller(name, best)) {
			best = name
		}
		if f, least := claims(fastest); c > f || c == f && m < least {
			fastest = name
		}
	}
	switch {
	case best != "":
		return best
	case fastest != "" && l.within(fastest, l.Seconds, limit):
		return fastest
	}
	return floor
}

// On returns the expected value and the 90% quantile of the run time on a profile, in seconds, rounded up. If profile
// or l.Profile is not a plain profile, the results are Seconds and High.
func (l Line) On(profile string) (seconds, high int) {
	to, from := l.factors(profile)
	if from == 0 {
		return l.Seconds, l.High
	}
	return int(math.Ceil(float64(l.Seconds) * to / from)), int(math.Ceil(float64(l.High) * to / from))
}

// RunTime formats run times for the decision table and the `caelum:runs=` tag. The result is "seconds" or
// "seconds-high", or "" if the run time is unknown.
func RunTime(seconds, high int) string {
	switch {
	case seconds == 0:
		return ""
	case high == 0:
		return strconv.Itoa(seconds)
	}
	return fmt.Sprintf("%d-%d", seconds, high)
}

// within reports whether a run time on l.Profile corresponds to at most limit seconds on another profile.
func (l Line) within(profile string, seconds int, limit float64) bool {
	to, from := l.factors(profile)
	return float64(seconds)*to <= limit*from
}

// factors returns two integers whose quotient is the run time on a profile divided by the run time on l.Profile. The
// quotient follows from Amdahl's law (takes): with resources s, a job takes ((100 - busy) s + 2 busy) / s hundredths of
// the run time on one compute slice. Both are 0 if profile or l.Profile is not a plain profile.
func (l Line) factors(profile string) (to, from float64) {
	c, _ := claims(profile)
	own, _ := claims(l.Profile)
	if c == 0 || own == 0 {
		return 0, 0
	}
	busy := float64(l.Busy)
	if l.Busy < 0 {
		busy = unknownPercent
	}
	work := func(s float64) float64 { return (100-busy)*s + 2*busy }
	on, ownOn := resources(c), resources(own)
	return work(on) * ownOn, work(ownOn) * on
}

// plainName matches the name of a profile without media engines or graphics.
var plainName = regexp.MustCompile(`^([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb$`)

// claims returns the number of compute slices and the memory in GB that are stated in the name of a plain profile, or 0
// for any other name.
func claims(name string) (compute, gb int) {
	m := plainName.FindStringSubmatch(name)
	if m == nil {
		return 0, 0
	}
	compute, _ = strconv.Atoi(m[1])
	gb, _ = strconv.Atoi(m[2])
	return compute, gb
}

// smaller reports whether profile a has fewer compute slices than b, or the same number of compute slices and less
// memory.
func smaller(a, b string) bool {
	c, m := claims(a)
	d, n := claims(b)
	return c < d || c == d && m < n
}
