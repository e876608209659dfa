// Package version holds the release of Caelum.
package version

// Version is the release of Caelum. The Makefile sets it at link time.
var Version = "development"
