// Package trust decides whether root may read or load a file. It accepts a file that only root and the given owners can
// change. It never changes a file.
//
// Files:
//
//	trust.go  the check of a file (Path) and of the directory of a file to write (Directory); the error texts
package trust
