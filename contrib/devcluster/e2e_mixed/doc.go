// Package e2emixed runs Caelum on a Slurm whose slurmctld and slurmdbd are of a newer release than its nodes, and
// upgrades the nodes while jobs run. Only the GPUs are emulated. The package contains only tests.
//
//	make mixed                                # slurmctld 26.05, nodes 24.11
//
// The tests need root, and binaries for both releases. CAELUM_NODE_ROOT is the root directory of the nodes' release.
// `contrib/devcluster/release --nodes` sets this variable. Without it, the tests are skipped.
package e2emixed
