// Package report writes the results of a simulation as a single HTML page with SVG drawings, and the page of `caelum
// usage --saved`. A page contains no scripts and loads no other files. The package does not run simulations or read
// files: the caller provides all results.
//
// Files:
//
//	page.go      the content of a page (Page, Policy); writes the HTML file
//	verdict.go   the sentence that names the best policy
//	page.html    the template of the page: its sections, the table of policies, the styles
//	saved.go     Saved: the page of `caelum usage --saved`; SVG bars (longestName)
//	saved.html   its template, which uses the head and the styles of page.html
//	draw.go      SVG drawings: waits by policy, and values over time (utilisation, queue, fragmentation); axes, colours
//	timeline.go  the drawing of the slices on each GPU over time (mostGPUs)
//	series.go    Recorder, which observes a simulation (mostSpans); the points of the lines; time units; axis ticks
package report
