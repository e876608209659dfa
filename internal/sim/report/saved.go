package report

import (
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"io"
	"strings"
)

// Saved is a page that compares the GPU-hours of slices with those of whole GPUs for the same jobs.
type Saved struct {
	Title, Verdict, Command, Date string
	Remarks                       []string
	Days, Users                   []Bar
	Heads                         []string   // the columns of the table of users
	Rows                          [][]string // the cells of each row
	Simulated                     string     // describes the simulation of the waits
	Policies                      []Policy   // the waits; empty if they were not simulated
}

// Bar is a row of a chart: the GPU-hours of slices, and those of whole GPUs for the same jobs.
type Bar struct {
	Name          string
	Whole, Slices float64
}

//go:embed saved.html
var savedHTML string

var saved = template.Must(template.Must(page.Clone()).New("saved").Parse(savedHTML))

// Write writes the page as HTML.
func (s Saved) Write(w io.Writer) error {
	data := struct {
		Saved
		DayChart, UserChart, Waits template.HTML
		Table                      []row
	}{Saved: s, DayChart: bars("GPU-hours by day", s.Days), UserChart: bars("GPU-hours by user", s.Users)}
	for _, cells := range s.Rows {
		r := row{Name: cells[0]}
		for k, text := range cells[1:] {
			r.Cells = append(r.Cells, cell{strings.ToLower(s.Heads[k+1]), text})
		}
		data.Table = append(data.Table, r)
	}
	if len(s.Policies) > 0 {
		data.Waits = waits(s.Policies)
	}
	return saved.Execute(w, data)
}

// longestName is the number of characters of a name that fit into the left margin. The tooltip shows the whole name.
const longestName = 12

// bars draws a row for each element of all: the GPU-hours of the slices, followed by those that they saved.
func bars(label string, all []Bar) template.HTML {
	const height, gap, figures = 20.0, 10.0, 170.0
	most := 1e-9
	for _, b := range all {
		most = max(most, b.Whole, b.Slices)
	}
	if len(all) == 0 {
		return ""
	}
	d := draw(int(float64(len(all))*(height+gap)+gap), label)
	scale := (pageWidth - left - right - figures) / most
	for k, b := range all {
		y, name := gap+float64(k)*(height+gap), []rune(b.Name)
		if len(name) > longestName {
			name = append(name[:longestName-1:longestName-1], '…')
		}
		fmt.Fprintf(d, `<g><title>%s: %.2f GPU-hours of slices, %.2f of whole GPUs</title>`, html.EscapeString(b.Name),
			b.Slices, b.Whole)
		d.text(left-10, y+height-5, "end", string(name))
		rest := max(b.Whole-b.Slices, 0)
		fmt.Fprintf(d, `<rect x="%d" y="%.1f" width="%.1f" height="%.0f" fill="%s"/>`, left, y, b.Slices*scale, height,
			colour(0))
		fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="%s"/>`, left+b.Slices*scale, y,
			rest*scale, height, colour(1))
		d.text(left+max(b.Whole, b.Slices)*scale+8, y+height-5, "start", number(short(b.Slices))+" of "+
			number(short(b.Whole)))
		d.WriteString("</g>")
	}
	return d.done()
}

// short rounds hours to whole ones or, below 100, to tenths.
func short(hours float64) float64 {
	if hours < 100 {
		return float64(int(10*hours+0.5)) / 10
	}
	return float64(int(hours + 0.5))
}
