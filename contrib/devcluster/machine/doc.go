// Package machine boots Debian's systemd in private namespaces for tests. systemd runs munge, slurmctld and slurmd with
// Debian's units, and the agent and the watcher with the shipped units. The boot script installs Caelum from the files
// in build/ or from deb packages and boots systemd. Only the GPUs are emulated. The script needs root and
// contrib/devcluster/prerequisites.
package machine
