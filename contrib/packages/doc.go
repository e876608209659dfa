// Package packages tests the deb and rpm packages that `make packages` builds: contents, owners, modes, dependencies,
// lintian and rpmlint, installation, upgrade and removal in throw-away roots, and the upgrade of a booted machine while
// jobs hold slices. It has no code of its own. README.md describes the packages.
package packages
