// Package e2eunits boots Debian's systemd in private namespaces and runs the agent and the watcher under the shipped
// unit files, beside munge, slurmctld and slurmd under Debian's own. Only the GPU is emulated. `boot` makes the
// machine. The package has no code of its own.
//
//	make units
//
// Needs root, contrib/devcluster/prerequisites and `make all`.
package e2eunits
