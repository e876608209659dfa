package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Page is the content of a page.
type Page struct {
	Title    string   // the workload
	Command  string   // the command that generated the page
	Date     string   // the date and time at which the command ran
	Facts    []string // lines that describe the cluster, the options and the omitted jobs
	Policies []Policy
	Grids    []int // the number of units of each GPU
	Loss     bool  // true if the simulation has no queue and rejects jobs that cannot start when they are submitted
}

// Policy is the result for one policy. Times are in seconds, and fractions are from 0 to 1.
type Policy struct {
	// Reference is true for results that do not come from a usable policy, such as the jobs' actual waiting times.
	Reference                                           bool
	Name, Note                                          string
	Started, Refused, Created                           int
	MeanWait, MedianWait, P95Wait, P99Wait, LongestWait float64
	Utilisation, Frag, Accepted                         float64
	Recorded                                            *Recorder // nil if the simulation was not recorded
}

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"colour": colour,
}).Parse(pageHTML))

func percent(x float64) string { return number(float64(int(1000*x+0.5))/10) + "%" }

func seconds(x float64) string { return number(float64(int(x + 0.5))) }

// columns returns the column headings of the table of policies and the corresponding cells of a policy. On a narrow
// screen, the page shows each heading next to its cell.
func (p Page) columns(of Policy) (heads, texts []string) {
	add := func(head, text string) { heads, texts = append(heads, head), append(texts, text) }
	if p.Loss {
		add("started", number(float64(of.Started)))
		add("refused", number(float64(of.Refused)))
		add("accepted", percent(of.Accepted))
	} else {
		add("mean wait, s", seconds(of.MeanWait))
		add("median", seconds(of.MedianWait))
		add("95%", seconds(of.P95Wait))
		add("99%", seconds(of.P99Wait))
		add("longest", seconds(of.LongestWait))
	}
	use, frag, created := "", "", ""
	if of.Recorded != nil {
		use, frag, created = percent(of.Utilisation), fmt.Sprintf("%.2f", of.Frag), number(float64(of.Created))
	}
	add("in use", use)
	add("fragmentation", frag)
	add("created", created)
	return heads, texts
}

// row is a row of the table of policies.
type row struct {
	Name  string
	Cells []cell
}

// cell is a figure with the heading of its column.
type cell struct{ Head, Text string }

func (p Page) rows() (rows []row) {
	for _, of := range p.Policies {
		r := row{Name: of.Name}
		heads, texts := p.columns(of)
		for k, head := range heads {
			r.Cells = append(r.Cells, cell{head, texts[k]})
		}
		rows = append(rows, r)
	}
	return rows
}

// File is the file to which a page is written. An existing file at the same path remains in place until Write has
// written the complete new page.
type File struct {
	path string
	temp *os.File
}

// Create creates a temporary file for the page at path. It returns an error if the file cannot be created, or if path
// is not a regular file.
func Create(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("couldn't write the page: %s is not a regular file", path)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("couldn't write the page %s: %w", path, failed.Err)
	} else if err != nil {
		return nil, err
	}
	return &File{path, temp}, nil
}

// Drop discards the page and leaves any existing file at the path unchanged. It has no effect after a successful Write.
func (f *File) Drop() {
	f.temp.Close()
	os.Remove(f.temp.Name())
}

// Write writes a Page or a Saved, sets the file's mode, and replaces any existing file at the path.
func (f *File) Write(p interface{ Write(io.Writer) error }, mode os.FileMode) error {
	if err := errors.Join(p.Write(f.temp), f.temp.Chmod(mode), f.temp.Close()); err != nil {
		return err
	}
	return os.Rename(f.temp.Name(), f.path)
}

// Write writes the page as HTML.
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
		Verdict                 string
		Rows                    []row
		Waits, Use, Queue, Frag template.HTML
		Profiles                []string
		Timelines               []timelineOf
		Shown, GPUs             int
	}{
		Page: p, Verdict: p.verdict(), Rows: p.rows(), Profiles: profiles, Shown: min(len(p.Grids), mostGPUs),
		GPUs: len(p.Grids),
	}
	if !p.Loss {
		data.Waits = waits(p.Policies)
	}
	if end > 0 {
		data.Use = lines(
			p.Policies,
			"share of all units that jobs needed",
			end,
			true,
			func(s step) float64 { return s.busy / units },
		)
		data.Queue = lines(p.Policies, "jobs that waited", end, false, func(s step) float64 { return s.waiting })
		data.Frag = lines(p.Policies, "fragmentation", end, false, func(s step) float64 { return s.frag })
	}
	for _, of := range p.Policies {
		if of.Recorded != nil && len(of.Recorded.spans) > 0 {
			data.Timelines = append(
				data.Timelines,
				timelineOf{of.Name, of.Recorded.cut, timeline(of.Recorded, p.Grids, profiles)},
			)
		}
	}
	return page.Execute(w, data)
}
