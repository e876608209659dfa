// Package report draws the results of a simulation as one HTML page with SVG drawings. The page has no scripts and
// loads nothing. The package never runs a simulation and reads no files: its caller passes all results in.
//
// Files:
//
//	page.go      the content of a page (Page, Policy); writes the HTML, and replaces an older file when it is complete
//	page.html    the template of the page: its sections, the table of policies, the styles
//	draw.go      SVG drawings: waits by policy, and values over time (utilisation, queue, fragmentation); axes, colours
//	timeline.go  the drawing of the slices on each GPU over time (mostGPUs 16)
//	series.go    Recorder, the observer of a simulation (mostSpans 4000); lines of 400 points; units of time, ticks
package report
