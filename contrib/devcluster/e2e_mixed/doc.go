// Package e2emixed tests Caelum on a cluster whose hosts have two different Slurm releases, and upgrades a cluster in
// the order that Slurm prescribes, while jobs are running and waiting. Only the GPUs are emulated.
//
//	make mixed                                # from 24.11 to 26.05
//
// The tests need root, and binaries for both releases. `contrib/devcluster/release --new` sets CAELUM_NEW_ROOT to the
// root directory of the newer release. Without it, the tests are skipped.
//
// Files:
//
//	mixed_test.go    the cluster; jobs, requeues and restarts while only the nodes have the older release
//	upgrade_test.go  the upgrade of slurmdbd, slurmctld, each node and the login node while jobs run
package e2emixed
