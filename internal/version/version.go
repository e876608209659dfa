// Package version contains the version of the running program. The commands named version and the status of the agent
// show it.
//
// Files:
//
//	version.go  Version and Commit, which the Makefile sets at link time; Current, which returns them as a Build
package version

import "runtime"

// Version is the release of Caelum, and Commit is the commit from which it was built. The Makefile sets both at link
// time.
var (
	Version = "development"
	Commit  = "unknown"
)

// Build describes a binary. The commands named version print its JSON form.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// Current returns the build of the running program.
func Current() Build { return Build{Version, Commit, runtime.Version()} }
