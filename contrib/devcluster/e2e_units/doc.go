// Package e2eunits tests the shipped unit files. systemd runs the agent and the watcher with these files, and munge,
// slurmctld and slurmd with the unit files from Debian (package machine).
//
//	make units
//
// The tests need root, contrib/devcluster/prerequisites and `make all`.
package e2eunits
