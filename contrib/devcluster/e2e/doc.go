// Package e2e tests Caelum on a real Slurm. The tests submit unchanged scripts as a user, and check the results in
// slurmctld, the agents and the GPUs. Only the GPUs are emulated. The package contains only tests. The tests need root,
// contrib/devcluster/prerequisites and `make all`.
//
//	go test -tags e2e ./contrib/devcluster/e2e
//	go test -tags e2e ./contrib/devcluster/e2e -rewrite     # writes the measured docs/script-matrix.md
//
// Every task runs testdata/task, which uses its device with `cuda-process --exclusive`. After each test, no job and no
// lease may remain (quiet_test.go). The logs of the agents and the emulated drivers must not show that two jobs or
// processes used a device at the same time.
package e2e
