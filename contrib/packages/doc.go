// Package packages tests the deb and rpm packages that `make packages` builds. It checks contents, owners, modes and
// dependencies, and runs lintian and rpmlint. It installs, upgrades and removes the packages in temporary root
// directories, and upgrades a booted machine while jobs hold slices. The package contains only tests. README.md
// describes the deb and rpm packages.
package packages
