// Package trust decides whether root may read or load a file. It accepts a file only if no users other than root and
// the given owners can change it. It does not change any files. Caelum uses it to check the configuration, the
// notification key, the NVML library and other files.
//
// Files:
//
//	trust.go  checks a file (Path), or the directory into which a file is to be written (Directory); errors
package trust
