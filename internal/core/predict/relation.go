package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// fewestValues is the number of different numbers with complete runs from which a relation can be seen.
	fewestValues = 3
	// chance is the largest probability, if the number did not matter, of peaks that follow it as closely.
	// priorFitSigma and priorFits describe the scatter of the peaks that is assumed before any runs exist: the standard
	// deviation of the logarithm of a peak, and the number of values that have the same weight as this assumption.
	chance        = 0.01
	priorFitSigma = 0.1
	priorFits     = 2
	// leastRatio is the smallest ratio of the peaks of two seen numbers with which a number matters.
	leastRatio = 1.1
	// growthMargin is the safety margin of a peak beyond the seen numbers, as a fraction of its growth. farthest is the
	// ratio to the last seen number up to which the growth is extrapolated.
	growthMargin = 0.25
	farthest     = 2
	// mostGrowth limits the growth of a peak, which is otherwise infinite after the number 0.
	mostGrowth = 1e6
	// largestNumber is the largest number that an args line can contain.
	largestNumber = 999_999_999_999
)

// Relation is the relation between a number in the arguments of a job's script and the memory that the job needs. The
// need never decreases with the number or, if falling is true, never increases.
type Relation struct {
	Position int // of the number among the numbers of the arguments, from 1
	// Assumed is true if too few numbers were seen. Up to the largest of them, the need is then that of the key, and
	// above, it is assumed to be proportional to the number.
	Assumed bool
	points  []seenValue // by ascending number
	falling bool
	curve   curve
	need    Need // the need of the key
}

// seenValue is the memory that runs with a certain number need, in MiB: with the margin (peak) and without (highest).
type seenValue struct {
	number, peak, highest float64
	runs                  int  // complete runs
	failed                bool // at least two runs ran out of memory, or may have
}

// Related returns the relation of the number that explains the peaks of a key's runs best. It returns false if no run
// was complete, if the runs have no numbers, or if the peaks do not depend on them.
func Related(h History, site Site) (Relation, bool) {
	best, few := Relation{}, Relation{}
	least := chance
	for position := 1; position <= MaxNumbers; position++ {
		all := pointsAt(h.Runs, position, site)
		complete := slices.DeleteFunc(slices.Clone(all), func(p seenValue) bool { return p.runs == 0 })
		switch c, p := fit(complete); {
		case len(complete) == 0:
		case len(complete) < fewestValues:
			if few.Position == 0 || len(few.points) < len(complete) {
				few = Relation{Position: position, Assumed: true, points: complete, curve: proportional}
			}
		case p < least:
			least = p
			best = Relation{Position: position, points: complete, curve: c, falling: c.slope < 0}
			best.envelope()
			best.bound(all)
		}
	}
	r := best
	if r.Position == 0 {
		r = few
	}
	if r.Position == 0 {
		return r, false
	}
	var ok bool
	r.need, ok = Predict(h, site)
	r.need.Level = ByArgs
	return r, ok
}

// pointsAt returns the needs of the runs by the number at a position, by ascending number.
func pointsAt(runs []Run, position int, site Site) (all []seenValue) {
	by := map[float64][]Run{}
	for _, r := range runs {
		if len(r.Args) >= position {
			by[r.Args[position-1]] = append(by[r.Args[position-1]], r)
		}
	}
	for number, runs := range by {
		var n Need
		tries := attempts(runs)
		n.memory(tries, site)
		short := 0
		for _, a := range tries {
			if a.short || a.doubtful {
				short++
			}
		}
		all = append(all, seenValue{number, n.PeakMiB, n.HighestMiB, n.Runs, short > 1})
	}
	slices.SortFunc(all, func(a, b seenValue) int { return cmp.Compare(a.number, b.number) })
	return all
}

// curve is a function of the number: intercept + slope x or, if power is true, exp(intercept) times x to the power of
// slope.
type curve struct {
	intercept, slope float64
	power            bool
}

// proportional is the curve of a peak that is proportional to the number.
var proportional = curve{slope: 1}

func (c curve) at(x float64) float64 {
	if c.power {
		return math.Exp(c.intercept) * math.Pow(x, c.slope)
	}
	return c.intercept + c.slope*x
}

// fit returns the curve that is nearest to the points, and the probability that points are as near to a curve if the
// number does not matter. The logarithms of the peaks are assumed to be normally distributed.
func fit(points []seenValue) (best curve, p float64) {
	if len(points) < fewestValues {
		return best, 1
	}
	var x, logX, y, logY, weights []float64
	for _, p := range points {
		peak := max(p.highest, 1)
		x, logX = append(x, p.number), append(logX, math.Log(p.number))
		y, logY, weights = append(y, peak), append(logY, math.Log(peak)), append(weights, 1/peak/peak)
	}
	var line, power curve
	line.intercept, line.slope = stat.LinearRegression(x, y, weights, false)
	power.intercept, power.slope = stat.LinearRegression(logX, logY, nil, false)
	power.power = true
	most, last := math.Inf(1), len(x)-1
	for _, c := range []curve{line, power} {
		squares := 0.0
		for k := range x {
			d := logY[k] - math.Log(c.at(x[k]))
			squares += d * d
		}
		if squares < most { // false if the curve is not positive at a point, or does not exist for the number 0
			best, most = c, squares
		}
	}
	if ratio := best.at(x[last]) / best.at(x[0]); math.IsInf(most, 1) || !(max(ratio, 1/ratio) > leastRatio) {
		return best, 1
	}
	freedom := float64(len(x) - 2 + priorFits)
	explained := stat.Variance(logY, nil)*float64(last) - most
	t := math.Sqrt(max(explained, 0) * freedom / (most + priorFits*priorFitSigma*priorFitSigma))
	return best, 2 * distuv.StudentsT{Sigma: 1, Nu: freedom}.Survival(t)
}

// envelope raises the points so that the need is monotone.
func (r *Relation) envelope() {
	r.upward(func() {
		for k := 1; k < len(r.points); k++ {
			p, before := &r.points[k], r.points[k-1]
			p.peak, p.highest = max(p.peak, before.peak), max(p.highest, before.highest)
		}
	})
}

// upward calls f while the points are in the order of growing need.
func (r *Relation) upward(f func()) {
	if r.falling {
		slices.Reverse(r.points)
		defer slices.Reverse(r.points)
	}
	f()
}

// bound adds the lower bounds that follow from incomplete runs, for numbers without complete ones. A bound that exceeds
// the need of a complete run of a more demanding number is lowered to it, unless runs have failed twice.
func (r *Relation) bound(all []seenValue) {
	complete := *r
	for _, p := range all {
		if p.runs > 0 {
			continue
		}
		for _, c := range complete.points {
			if c.number > p.number != r.falling && !p.failed {
				p.peak, p.highest = min(p.peak, c.peak), min(p.highest, c.highest)
			}
		}
		if peak, highest := complete.at(p.number); p.peak > peak {
			p.highest = max(p.highest, highest)
			r.points = append(slices.Clip(r.points), p)
		}
	}
	slices.SortFunc(r.points, func(a, b seenValue) int { return cmp.Compare(a.number, b.number) })
	r.envelope()
}

// at returns the memory for a number: the need of a seen number, the linear interpolation between two of them, or the
// growth along the curve beyond them.
func (r Relation) at(x float64) (peak, highest float64) {
	first, last := r.points[0], r.points[len(r.points)-1]
	switch {
	case x > last.number && !r.falling:
		return r.beyond(last, x)
	case x < first.number && r.falling:
		return r.beyond(first, x)
	case x <= first.number:
		return first.peak, first.highest
	case x >= last.number:
		return last.peak, last.highest
	}
	k := slices.IndexFunc(r.points, func(p seenValue) bool { return p.number >= x })
	a, b := r.points[k-1], r.points[k]
	share := (x - a.number) / (b.number - a.number)
	if share == 1 {
		return b.peak, b.highest // without rounding
	}
	return a.peak + share*(b.peak-a.peak), a.highest + share*(b.highest-a.highest)
}

// beyond returns the memory for a number that is more demanding than the last point in this direction.
func (r Relation) beyond(last seenValue, x float64) (peak, highest float64) {
	growth := min(r.curve.at(x)/r.curve.at(last.number)-1, mostGrowth)
	if !(growth > 0) {
		growth = 0
	}
	return last.peak * (1 + (1+growthMargin)*growth), last.highest * (1 + growth)
}

// atNumber returns the need of a job with the given number, with the Why of the key.
func (r Relation) atNumber(number float64) Need {
	n := r.need
	peak, highest := r.at(number)
	switch {
	case !r.Assumed:
		n.PeakMiB, n.HighestMiB = peak, highest
	case number > r.points[len(r.points)-1].number:
		n.PeakMiB, n.HighestMiB = max(n.PeakMiB, peak), max(n.HighestMiB, highest)
	}
	return n
}

// Need returns the need of a job with the given number. Why says whether the number was seen.
func (r Relation) Need(number float64) Need {
	n, first, last := r.atNumber(number), r.points[0].number, r.points[len(r.points)-1].number
	known := slices.IndexFunc(r.points, func(p seenValue) bool { return p.number == number && p.runs > 0 })
	switch {
	case r.Assumed && number <= last:
	case r.Assumed:
		n.Why = fmt.Sprintf("%.12g is larger than the numbers of all runs, of which %.12g is the largest: the need is "+
			"assumed to be proportional to the number", number, last)
	case known >= 0:
		n.Runs = r.points[known].runs
		runs := "1 complete run"
		if n.Runs > 1 {
			runs = fmt.Sprintf("%d complete runs", n.Runs)
		}
		n.Why = fmt.Sprintf("%s had the number %.12g", runs, number)
	case number > first && number < last:
		n.Why = fmt.Sprintf("%.12g is between the numbers of the runs: the need is interpolated", number)
	default:
		n.Why = fmt.Sprintf("%.12g is beyond the numbers of the runs, which are from %.12g to %.12g: the need is "+
			"extrapolated", number, first, last)
	}
	return n
}

// Steps returns the steps of the args line. choose returns the profile for a need, and beyond the profile for numbers
// that are too far from the seen ones, given the profile of the most demanding of these. The result is false if there
// are too many steps.
func (r Relation) Steps(choose func(Need) string, beyond func(profile string) string) (Steps, bool) {
	s := stairs{profile: func(x float64) string { return choose(r.atNumber(x)) }}
	first, last := r.points[0].number, r.points[len(r.points)-1].number
	var stops []float64
	for _, p := range r.points {
		stops = append(stops, p.number)
	}
	end := s.profile(last)
	switch far := roundDown(min(last*farthest, largestNumber)); {
	case r.Assumed:
		stops, end = []float64{last, largestNumber}, beyond(end)
	case !r.falling:
		end = beyond(end)
		if far > last {
			stops = append(stops, far)
		}
	default:
		if near := roundDown(first / farthest); near < first {
			s.steps = append(s.steps, Step{near, beyond(s.profile(first))})
			stops = append([]float64{near}, stops...)
		}
	}
	for k := 1; k < len(stops); k++ {
		s.between(stops[k-1], stops[k], stops[k-1])
	}
	s.add(stops[len(stops)-1], s.profile(stops[len(stops)-1]))
	all := Steps{Position: r.Position, Beyond: end}
	for k, step := range s.steps {
		next := end
		if k+1 < len(s.steps) {
			next = s.steps[k+1].Profile
		}
		if step.Profile != next {
			all.UpTo = append(all.UpTo, step)
		}
	}
	if len(all.UpTo) == 0 {
		all.UpTo = []Step{{last, end}}
	}
	return all, len(all.UpTo) <= MaxSteps
}

// stairs finds the numbers at which the profile changes.
type stairs struct {
	profile func(number float64) string
	steps   []Step
}

// between adds a step for each change between two numbers. No step is below least.
func (s *stairs) between(low, high, least float64) {
	before := s.profile(low)
	if before == s.profile(high) {
		return
	}
	if middle := low + (high-low)/2; high-low > 1e-6+1e-5*high {
		s.between(low, middle, least)
		s.between(middle, high, least)
		return
	}
	s.add(max(roundDown(low), least), before)
}

// add adds a step unless rounding has made it equal to the last one.
func (s *stairs) add(upTo float64, profile string) {
	if n := len(s.steps); n == 0 || upTo > s.steps[n-1].UpTo {
		s.steps = append(s.steps, Step{upTo, profile})
	}
}

// roundDown rounds a number down to four digits, of which at most six are decimals.
func roundDown(x float64) float64 {
	if x <= 0 {
		return 0
	}
	unit := math.Max(math.Pow(10, math.Floor(math.Log10(x))-3), 1e-6)
	return math.Round(math.Floor(x/unit)*unit*1e6) / 1e6
}

// ParseNumbers parses the numbers in the arguments of a script, separated by commas. The result is nil if the text is
// empty or not a list of up to MaxNumbers numbers.
func ParseNumbers(text string) (all []float64) {
	words := strings.Split(text, ",")
	if len(words) > MaxNumbers {
		return nil
	}
	for _, w := range words {
		m := numberForm.FindStringSubmatch(w)
		if m == nil || m[1] != "" {
			return nil
		}
		x, _ := strconv.ParseFloat(w, 64)
		all = append(all, x)
	}
	return all
}

// FormatNumbers is the inverse of ParseNumbers.
func FormatNumbers(all []float64) string {
	var words []string
	for _, x := range all {
		words = append(words, strconv.FormatFloat(x, 'f', -1, 64))
	}
	return strings.Join(words, ",")
}
