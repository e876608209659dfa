// Package report draws what came out of a simulation: one HTML page that needs nothing else, no script and no network.
// It decides nothing and reads nothing.
package report
