// Package e2eunits tests the shipped unit files. It runs the agent and the watcher under systemd, together with munge,
// slurmctld and slurmd under Debian's unit files (package machine). The package contains only tests.
//
//	make units
//
// The tests need root, contrib/devcluster/prerequisites and `make all`.
package e2eunits
