// Package version holds the release of Caelum.
package version

import "runtime"

// Version is the release of Caelum, and Commit the commit from which it was built. The Makefile sets both at link time.
var (
	Version = "development"
	Commit  = "unknown"
)

// Build describes a binary. Its JSON form is the output of the commands named version.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// Current returns the build of the running program.
func Current() Build { return Build{Version, Commit, runtime.Version()} }
