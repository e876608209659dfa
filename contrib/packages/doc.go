// Package packages tests the deb and rpm packages that `make packages` builds (see README.md). The tests check
// contents, owners, modes and dependencies, and run lintian and rpmlint. They install, upgrade and remove the packages
// in temporary root directories, and upgrade a booted machine while jobs hold slices. The Go package contains no other
// code.
package packages
