package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// The charts are SVG images. Their coordinates refer to a page pageWidth units wide, which browsers scale to the width
// of the window.
const (
	pageWidth = 960
	left      = 150 // the left margin, for the labels
	right     = 48  // the right margin
)

// colours lists the colours of Okabe and Ito, which colour-blind readers can distinguish and which are visible on both
// white and black.
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f", "#b8a800"}

func colour(k int) string { return colours[k%len(colours)] }

type drawing struct{ strings.Builder }

// draw begins a chart. label describes it for screen readers.
func draw(height int, label string) *drawing {
	d := &drawing{}
	fmt.Fprintf(d, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, pageWidth, height, html.EscapeString(label))
	return d
}

// done ends the chart and returns the complete SVG image.
func (d *drawing) done() template.HTML {
	d.WriteString("</svg>")
	return template.HTML(d.String())
}

func (d *drawing) text(x, y float64, anchor, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

func (d *drawing) grid(x1, y1, x2, y2 float64) {
	fmt.Fprintf(d, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x1, y1, x2, y2)
}

// time draws a time axis from 0 to end (in seconds) below a chart, and vertical grid lines from top to bottom. The
// returned function converts a time in seconds to an x coordinate.
func (d *drawing) time(end, top, bottom float64) (x func(seconds float64) float64) {
	x = func(t float64) float64 { return left + (pageWidth-left-right)*min(t, end)/end }
	name, seconds := unit(end)
	for _, t := range ticks(end / seconds) {
		d.grid(x(t*seconds), top, x(t*seconds), bottom)
		d.text(x(t*seconds), bottom+20, "middle", number(round(t)))
	}
	d.text((left+pageWidth-right)/2, bottom+42, "middle", name+" since the first submission")
	return x
}

// number formats a number for display, for example as 12,345 or 0.125.
func number(x float64) string {
	whole, part, _ := strings.Cut(strconv.FormatFloat(x, 'f', -1, 64), ".")
	for k := len(whole) - 3; k > 0; k -= 3 {
		whole = whole[:k] + "," + whole[k:]
	}
	if part != "" {
		return whole + "." + part
	}
	return whole
}

// round removes the floating-point error from the value of a tick.
func round(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// waits draws each policy's median, mean, 95th-percentile and longest waiting time on a logarithmic axis in seconds.
func waits(policies []Policy) template.HTML {
	const row, top = 34.0, 16.0
	most := 10.0
	for _, p := range policies {
		most = max(most, p.LongestWait)
	}
	decades := math.Ceil(math.Log10(most))
	first := max(0, decades-4)
	least := math.Pow(10, first)
	x := func(s float64) float64 {
		return left + (pageWidth-left-right)*(math.Log10(max(s, least))-first)/(decades-first)
	}
	bottom := top + row*float64(len(policies))
	d := draw(int(bottom)+46, "waiting times by policy")
	for k := first; k <= decades; k++ {
		d.grid(x(math.Pow(10, k)), top, x(math.Pow(10, k)), bottom)
		d.text(x(math.Pow(10, k)), bottom+18, "middle", number(math.Pow(10, k)))
	}
	d.text(
		(left+pageWidth-right)/2,
		bottom+40,
		"middle",
		"waiting time in seconds (left edge: "+number(least)+" s or less)",
	)
	for k, p := range policies {
		y := top + row*(float64(k)+0.5)
		d.text(left-12, y+5, "end", p.Name)
		fmt.Fprintf(
			d,
			`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`,
			x(p.MedianWait),
			y,
			x(p.LongestWait),
			y,
			colour(k),
		)
		d.WriteString(mark(x(p.MedianWait), y, "|", colour(k), "median", p.MedianWait))
		d.WriteString(mark(x(p.P95Wait), y, "<", colour(k), "95th percentile", p.P95Wait))
		d.WriteString(mark(x(p.LongestWait), y, "|", colour(k), "longest", p.LongestWait))
		d.WriteString(mark(x(p.MeanWait), y, "o", colour(k), "mean", p.MeanWait))
	}
	return d.done()
}

// mark returns the mark for a value at the point (x, y): a circle for the sign "o", a diamond for "<", and a bar for
// "|". The tooltip of the mark shows the name and the value s, in seconds.
func mark(x, y float64, sign, colour, name string, s float64) string {
	title := fmt.Sprintf("<title>%s %s s</title>", name, number(math.Round(s*10)/10))
	switch sign {
	case "o":
		return fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="7" fill="%s">%s</circle>`, x, y, colour, title)
	case "<":
		return fmt.Sprintf(`<path d="M%.1f %.1fl7 7l7 -7l-7 -7z" fill="%s">%s</path>`, x-7, y, colour, title)
	}
	return fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="4" height="18" fill="%s">%s</rect>`, x-2, y-9, colour, title)
}

// lines draws a value over time from 0 to end (in seconds), with one line for each policy that has recorded values. If
// percent is true, the value is a fraction, and the axis shows percentages from 0 to 100.
func lines(policies []Policy, label string, end float64, percent bool, value func(step) float64) template.HTML {
	const top, height = 12.0, 220.0
	all := make([][]float64, len(policies))
	most := 0.0
	for k, p := range policies {
		if p.Recorded == nil {
			continue
		}
		all[k] = p.Recorded.means(end, value)
		for _, v := range all[k] {
			most = max(most, v)
		}
	}
	if percent {
		most = 1
	}
	most = max(most, 1e-9)
	y := func(v float64) float64 { return top + height*(1-v/most) }
	d := draw(int(top+height)+48, label)
	for _, v := range ticks(most) {
		tick := number(round(v))
		if percent {
			tick = fmt.Sprintf("%.0f%%", 100*v)
		}
		d.grid(left, y(v), pageWidth-right, y(v))
		d.text(left-10, y(v)+5, "end", tick)
	}
	x := d.time(end, top, top+height)
	for k, line := range all {
		if line == nil {
			continue
		}
		fmt.Fprintf(d, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, colour(k))
		for i, v := range line {
			fmt.Fprintf(d, "%.1f,%.1f ", x((float64(i)+0.5)*end/points), y(v))
		}
		fmt.Fprintf(d, `"><title>%s</title></polyline>`, html.EscapeString(policies[k].Name))
	}
	return d.done()
}
