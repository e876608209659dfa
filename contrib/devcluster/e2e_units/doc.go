// Package e2eunits boots Debian's systemd in private namespaces. It runs the agent and the watcher under the shipped
// unit files, and munge, slurmctld and slurmd under Debian's unit files. Only the GPU is emulated. The script boot
// makes the machine. The package contains only tests.
//
//	make units
//
// The tests need root, contrib/devcluster/prerequisites and `make all`.
package e2eunits
