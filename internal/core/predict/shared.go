package predict

import (
	"cmp"
	"fmt"
	"slices"
)

// PredictShared predicts the need of a job from other users' runs of the same script. users contains one history per
// user. The need is first predicted for each user separately, so that all users have the same weight regardless of
// their number of runs. Every figure in the result is the upper median of the users' figures. Therefore, if fewer than
// half of the users are hostile, each figure lies between the smallest and the largest figure of the honest users. It
// returns false if fewer than [Site.Users] users have a complete run.
func PredictShared(users []History, site Site) (Need, bool) {
	var needs []Need
	for _, h := range users {
		if need, ok := Predict(h, site); ok {
			needs = append(needs, need)
		}
	}
	if len(needs) < site.users() {
		return Need{Level: BySite, Busy: UnknownBusy, MaxSlowdown: site.MaxSlowdown}, false
	}
	of := func(figure func(Need) float64) float64 { return upperMedian(needs, figure) }
	n := Need{
		Level:       BySite,
		PeakMiB:     of(func(u Need) float64 { return u.PeakMiB }),
		HighestMiB:  of(func(u Need) float64 { return u.HighestMiB }),
		Busy:        of(func(u Need) float64 { return u.Busy }),
		Limit:       of(func(u Need) float64 { return u.Limit }),
		MaxSlowdown: site.MaxSlowdown,
		Compute:     int(of(func(u Need) float64 { return float64(u.Compute) })),
	}
	known, ended := 0, 0
	for _, u := range needs {
		n.Runs += u.Runs
		if u.BusyKnown {
			known++
		}
		if u.Ended {
			ended++
		}
	}
	n.BusyKnown, n.Ended = 2*known > len(needs), 2*ended > len(needs)
	// Run times of different users are comparable only for slices of the same size.
	times := func(figure func(seconds, low, high float64) float64) float64 {
		return of(func(u Need) float64 { return figure(u.Takes(n.Compute)) })
	}
	n.Seconds = times(func(seconds, _, _ float64) float64 { return seconds })
	n.Low = times(func(_, low, _ float64) float64 { return low })
	n.High = times(func(_, _, high float64) float64 { return high })
	n.Why = fmt.Sprintf(
		"the memory is the upper median of the needs of %d users; each user counts once",
		len(needs),
	)
	return n, true
}

// upperMedian returns the median of a figure over all needs. For an even number of needs, it returns the larger of the
// two middle figures.
func upperMedian(needs []Need, figure func(Need) float64) float64 {
	all := make([]float64, len(needs))
	for i, n := range needs {
		all[i] = figure(n)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (s Site) users() int { return cmp.Or(s.Users, 3) }
