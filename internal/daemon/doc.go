// Package daemon contains what the agent (caelumd) and the watcher (caelum-watch) have in common.
//
// Files:
//
//	daemon.go   Logger; SaveMemory; Printable, for the error that ends a daemon
//	config.go   the config command
//	version.go  the version command
package daemon
