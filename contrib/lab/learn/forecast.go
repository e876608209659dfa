package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"caelum/internal/core/predict"
)

// curvesPerSeed is the number of emulated runs for each shape and seed.
const curvesPerSeed = 10

// knowledge is a source of information about when a run will end.
type knowledge struct {
	name string
	end  func(c *curve, ran float64) predict.End
}

var knowledges = []knowledge{
	{"iterations", func(c *curve, ran float64) predict.End {
		return predict.End{Ran: ran, Total: c.seconds, Limit: c.limit}
	}},
	{"learned run time", func(c *curve, ran float64) predict.End {
		return predict.End{Ran: ran, Learned: c.learned, Limit: c.limit}
	}},
	{"time limit", func(c *curve, ran float64) predict.End { return predict.End{Ran: ran, Limit: c.limit} }},
}

// alarmAt returns the step of the first alarm before the run fails or completes, or -1 if there is none. Forecasts are
// made as often as by an agent.
func alarmAt(c *curve, f forecaster, end func(*curve, float64) predict.End) int {
	p := f.start(c)
	step, next := c.seconds/curveSteps, 0.0
	for k := range c.failsAt() {
		ran := float64(k+1) * step
		p.add(k, ran)
		if ran < next {
			continue
		}
		next = ran + max(5, 0.02*ran)
		if p.alarm(end(c, ran)) {
			return k
		}
	}
	return -1
}

// peakError returns the relative error of the peak forecast after 10% of a run whose end is known in advance and whose
// slice is large enough.
func peakError(c *curve, f forecaster) float64 {
	wide := *c
	wide.slice = 1e9
	p := f.start(&wide)
	step := c.seconds / curveSteps
	const tenth = curveSteps / 10
	for k := range tenth {
		p.add(k, float64(k+1)*step)
	}
	peak := c.peak(curveSteps)
	return math.Abs(p.peak(predict.End{Ran: tenth * step, Total: c.seconds})-peak) / peak
}

// drawCurves returns the runs of one shape.
func drawCurves(s shape, seeds []uint64) (all []*curve) {
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 19))
		for range curvesPerSeed {
			all = append(all, newCurve(s, rng))
		}
	}
	return all
}

// tally counts a rule's alarms. late counts failures without an earlier alarm, and saved is the sum of the fractions of
// the time until failure that the alarms saved. lateLater and failsLater count only failures after the part of the run
// in which Caelum raises no alarms. start counts the runs that fail in their first iterations; no other counter
// includes them.
type tally struct {
	fits, falses, fails, late, start int
	failsLater, lateLater            int
	saved                            float64
}

func (t *tally) add(o tally) {
	t.fits, t.falses, t.start = t.fits+o.fits, t.falses+o.falses, t.start+o.start
	t.fails, t.late, t.saved = t.fails+o.fails, t.late+o.late, t.saved+o.saved
	t.failsLater, t.lateLater = t.failsLater+o.failsLater, t.lateLater+o.lateLater
}

func (t *tally) falseShare() string { return share(float64(t.falses), t.fits) }
func (t *tally) lateShare() string  { return share(float64(t.late), t.fails) }
func (t *tally) laterShare() string { return share(float64(t.lateLater), t.failsLater) }
func (t *tally) savedShare() string { return share(t.saved, t.fails) }

// alarms returns a rule's tally for runs of one shape.
func alarms(curves []*curve, f forecaster, n knowledge) (t tally) {
	for _, c := range curves {
		fails := c.failsAt()
		if float64(fails) < atStart*curveSteps {
			t.start++
			continue
		}
		alarm := alarmAt(c, f, n.end)
		if fails == curveSteps {
			t.fits++
			if alarm >= 0 {
				t.falses++
			}
			continue
		}
		later := float64(fails) >= noAlarms*curveSteps
		t.fails++
		if later {
			t.failsLater++
		}
		switch {
		case alarm >= 0:
			t.saved += 1 - float64(alarm+1)/float64(fails+1)
		case later:
			t.late, t.lateLater = t.late+1, t.lateLater+1
		default:
			t.late++
		}
	}
	return t
}

// share returns a quotient as a percentage, or "-" if there are no cases.
func share(part float64, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/float64(of))
}

// compareForecasts prints one table that compares all rules with known iterations, and one table with Caelum's forecast
// for each shape and each source of information about the end.
func compareForecasts(w io.Writer, seeds []uint64) error {
	curves := map[string][]*curve{}
	for _, s := range shapes {
		curves[s.name] = drawCurves(s, seeds)
	}
	if err := ruleTable(w, curves); err != nil {
		return err
	}
	for _, f := range own {
		if err := shapeTable(w, f, curves); err != nil {
			return err
		}
	}
	return nil
}

// meanError returns the mean of peakError as a percentage.
func meanError(curves []*curve, f forecaster) string {
	sum := 0.0
	for _, c := range curves {
		sum += peakError(c, f)
	}
	return share(sum, len(curves))
}

// ruleTable prints the results of all rules for runs whose iterations are known.
func ruleTable(w io.Writer, curves map[string][]*curve) error {
	var every, growing []*curve
	for _, s := range shapes {
		every = append(every, curves[s.name]...)
		if s.grows {
			growing = append(growing, curves[s.name]...)
		}
	}
	head := "rule, peak error after 10%, peak error (growing shapes), false alarms, late alarms, " +
		"late alarms (growing shapes), late alarms after 20% (growing shapes)"
	return table(w, head, func(row func(string, ...any)) {
		for _, f := range forecasters {
			all, some := alarms(every, f, knowledges[0]), alarms(growing, f, knowledges[0])
			row("%s, %s, %s, %s, %s, %s, %s", f.name, meanError(every, f), meanError(growing, f),
				all.falseShare(), all.lateShare(), some.lateShare(), some.laterShare())
		}
	})
}

// shapeTable prints one rule's results for each shape and each source of information about the end.
func shapeTable(w io.Writer, f forecaster, curves map[string][]*curve) error {
	head := f.name + ": false / late / saved, error of the peak after 10%"
	for _, n := range knowledges {
		head += ", " + n.name
	}
	return table(w, head+", runs that fit, runs that fail, at the start", func(row func(string, ...any)) {
		sums := make([]tally, len(knowledges))
		print := func(name, err string, all []tally) {
			format, values := "%s, %s", []any{name, err}
			for _, t := range all {
				format += ", %s / %s / %s"
				values = append(values, t.falseShare(), t.lateShare(), t.savedShare())
			}
			row(format+", %d, %d, %d", append(values, all[0].fits, all[0].fails, all[0].start)...)
		}
		var every []*curve
		for _, s := range shapes {
			var all []tally
			for k, n := range knowledges {
				all = append(all, alarms(curves[s.name], f, n))
				sums[k].add(all[k])
			}
			print(s.name, meanError(curves[s.name], f), all)
			every = append(every, curves[s.name]...)
		}
		print("all", meanError(every, f), sums)
	})
}
