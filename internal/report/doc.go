// Package report draws the results of a simulation as one HTML page with SVG drawings. The page contains no scripts and
// loads no other files. The package does not run simulations and reads no files: its caller provides all results.
//
// Files:
//
//	page.go      the content of a page (Page, Policy); writes the HTML file, and replaces an older file when complete
//	page.html    the template of the page: its sections, the table of policies, the styles
//	draw.go      SVG drawings: waits by policy, and values over time (utilisation, queue, fragmentation); axes, colours
//	timeline.go  the drawing of the slices on each GPU over time (mostGPUs)
//	series.go    Recorder, the observer of a simulation (mostSpans); lines of 400 points; units of time, ticks
package report
