// Package e2emixed tests Caelum on a Slurm cluster whose slurmctld and slurmdbd are of a newer release than its nodes,
// and upgrades the nodes while jobs run. Only the GPUs are emulated.
//
//	make mixed                                # slurmctld 26.05, nodes 24.11
//
// The tests need root, and binaries for both releases. `contrib/devcluster/release --nodes` sets CAELUM_NODE_ROOT to
// the root directory of the nodes' release. Without CAELUM_NODE_ROOT, the tests are skipped.
package e2emixed
