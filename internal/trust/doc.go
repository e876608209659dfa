// Package trust decides whether root may read or load a file. It accepts a file only if no users except root and the
// given owners can change it. The package does not change files. It is used for the configuration, the wake key and the
// NVML library, among others.
//
// Files:
//
//	trust.go  checks a file (Path), or the directory in which a file is written (Directory); the errors
package trust
