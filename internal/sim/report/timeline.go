package report

import (
	"fmt"
	"html"
	"html/template"
	"slices"
)

// mostGPUs is the maximum number of GPUs in a timeline, to keep the page short. The page shows the number of omitted
// GPUs.
const mostGPUs = 16

// timeline draws the slices on each GPU over time. Each slice is a box that extends from the start to the end of its
// job. The first unit of a GPU is at the top.
func timeline(r *Recorder, grids []int, profiles []string) template.HTML {
	const unitHeight, gap, top = 6.0, 8.0, 8.0
	n := min(len(grids), mostGPUs)
	y := make([]float64, n+1)
	y[0] = top
	for k := range n {
		y[k+1] = y[k] + unitHeight*float64(grids[k]) + gap
	}
	end := 0.0
	for _, s := range r.spans {
		end = max(end, s.From)
		if !r.cut {
			end = max(end, s.To)
		}
	}
	end = max(end, 1e-9)
	d := draw(int(y[n])+48, "slices of each GPU over time")
	x := d.time(end, top, y[n])
	for k := range n {
		d.text(left-12, y[k]+unitHeight*float64(grids[k])/2+5, "end", fmt.Sprintf("GPU %d", k))
		fmt.Fprintf(
			d,
			`<rect class="gpu" x="%d" y="%.1f" width="%d" height="%.1f"/>`,
			left,
			y[k],
			pageWidth-left-right,
			unitHeight*float64(grids[k]),
		)
	}
	for _, s := range r.spans {
		if s.GPU >= n || s.From >= end {
			continue
		}
		fmt.Fprintf(
			d,
			`<rect x="%.2f" y="%.1f" width="%.2f" height="%.1f" fill="%s" class="slice">`+
				`<title>job %s: %s, %.0f s</title></rect>`,
			x(s.From),
			y[s.GPU]+unitHeight*float64(s.Start),
			max(x(s.To)-x(s.From), 0.3),
			unitHeight*float64(s.Size),
			colour(slices.Index(profiles, s.Profile)),
			html.EscapeString(s.Job),
			html.EscapeString(s.Profile),
			s.To-s.From,
		)
	}
	return d.done()
}
