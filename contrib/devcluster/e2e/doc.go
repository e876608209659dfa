// Package e2e tests Caelum on a real Slurm cluster. The tests submit unchanged scripts as a user, and check the states
// of slurmctld, the agents and the GPUs. Only the GPUs are emulated. The tests need root,
// contrib/devcluster/prerequisites and `make all`.
//
//	go test -tags e2e ./contrib/devcluster/e2e
//	go test -tags e2e ./contrib/devcluster/e2e -rewrite     # writes testdata/matrix and docs/script-matrix.md
//
// Every task runs testdata/task, which uses the task's device with `cuda-process --exclusive`. After each test, there
// must be no jobs or leases left in the cluster (quiet_test.go), and the logs of the agents and the emulated drivers
// must not show two jobs or two processes using a device at the same time.
package e2e
