// Package packages tests the deb and rpm packages that `make packages` builds: contents, owners, modes, dependencies,
// lintian and rpmlint, and installation, upgrade and removal in throw-away roots. It has no code of its own, and starts
// neither Slurm nor an agent. README.md describes the packages.
package packages
