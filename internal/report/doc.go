// Package report draws the results of a simulation as one HTML page with SVG drawings. The page has no scripts and
// loads nothing. The package never runs a simulation and reads no files: its caller passes all results in.
package report
