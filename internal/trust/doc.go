// Package trust decides whether root may read or load a file. The package accepts a file only if no users except root
// and the given owners can change the file. The package does not change files. Caelum uses the package to check the
// configuration, the key of the notifications, the NVML library and other files.
//
// Files:
//
//	trust.go  checks a file (Path), or the directory in which a file is written (Directory); the errors
package trust
