// Package trust decides whether root may read or load a file. It accepts a file only if no users except root and the
// given owners can change it. The package does not change files. Caelum uses it to check the configuration, the wake
// key, the NVML library and other files.
//
// Files:
//
//	trust.go  checks a file (Path), or the directory in which a file is written (Directory); the errors
package trust
