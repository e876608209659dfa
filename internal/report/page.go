package report

import (
	_ "embed"
	"errors"
	"html/template"
	"io"
	"os"
	"slices"
)

// Page is what a page shows.
type Page struct {
	Title    string   // the workload
	Facts    []string // what else was given: GPUs, queue, what was left out
	Policies []Policy
	Grids    []int // by GPU, its units
	Loss     bool  // nobody waits
}

// Policy is what came out under one. Times are in seconds, shares from 0 to 1.
type Policy struct {
	Name, Note                                          string
	Started, Refused, Created                           int
	MeanWait, MedianWait, P95Wait, P99Wait, LongestWait float64
	Utilisation, Frag, Accepted                         float64
	Recorded                                            *Recorder // nil: nothing was
}

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"colour": colour, "number": number, "percent": func(x float64) string { return number(float64(int(1000*x+0.5))/10) + "%" },
	"seconds": func(x float64) string { return number(float64(int(x + 0.5))) },
}).Parse(pageHTML))

// WriteFile writes the page to a file.
func (p Page) WriteFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f), f.Close())
}

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	end, units := 0.0, 0.0
	var profiles []string
	for _, of := range p.Policies {
		if of.Recorded == nil {
			continue
		}
		end = max(end, of.Recorded.end())
		for _, s := range of.Recorded.spans {
			if !slices.Contains(profiles, s.Profile) {
				profiles = append(profiles, s.Profile)
			}
		}
	}
	slices.Sort(profiles)
	for _, g := range p.Grids {
		units += float64(g)
	}
	type timelineOf struct {
		Name string
		Cut  bool
		SVG  template.HTML
	}
	data := struct {
		Page
		Waits, Use, Queue, Frag template.HTML
		Profiles                []string
		Timelines               []timelineOf
		Shown, GPUs             int
	}{Page: p, Profiles: profiles, Shown: min(len(p.Grids), mostGPUs), GPUs: len(p.Grids)}
	if !p.Loss {
		data.Waits = waits(p.Policies)
	}
	if end > 0 {
		data.Use = lines(p.Policies, "share of all units that held jobs", end, true, func(s step) float64 { return s.busy / units })
		data.Queue = lines(p.Policies, "jobs that waited", end, false, func(s step) float64 { return s.waiting })
		data.Frag = lines(p.Policies, "fragmentation", end, false, func(s step) float64 { return s.frag })
	}
	for _, of := range p.Policies {
		if of.Recorded != nil && len(of.Recorded.spans) > 0 {
			data.Timelines = append(data.Timelines, timelineOf{of.Name, of.Recorded.cut, timeline(of.Recorded, p.Grids, profiles)})
		}
	}
	return page.Execute(w, data)
}
