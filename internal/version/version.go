// Package version has the release of Caelum, which both programs and the agent's status show. It imports nothing.
package version

// Release is the release. The Makefile sets it at link time to the output of `git describe`.
var Release = "development"
