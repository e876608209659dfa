// Package version provides the version of the running program, as shown by the version commands and in the agent's
// status.
//
// Files:
//
//	version.go  Version and Commit, which the Makefile sets at link time; Current, which returns them as a Build
package version

import "runtime"

// Version is the release of Caelum, and Commit is the commit from which the program was built. The Makefile sets both
// at link time.
var (
	Version = "development"
	Commit  = "unknown"
)

// Build describes how a program was built. The version commands print it as JSON.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// Current returns the build of the running program.
func Current() Build { return Build{Version, Commit, runtime.Version()} }
