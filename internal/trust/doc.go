// Package trust decides whether root may read or load a file. It accepts a file only if no users except root and the
// given owners can change the file. It never changes a file.
//
// Files:
//
//	trust.go  the check of a file (Path) and of the directory of a file to write (Directory); the error texts
package trust
