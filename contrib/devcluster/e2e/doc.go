// Package e2e tests Caelum on a real Slurm: it submits unchanged scripts as a user, and checks the results in
// slurmctld, the agents and the GPUs. Only the GPUs are emulated. The package contains only tests. The tests need root,
// contrib/devcluster/prerequisites and `make all`.
//
//	go test -tags e2e ./contrib/devcluster/e2e
//	go test -tags e2e ./contrib/devcluster/e2e -rewrite     # writes the measured docs/script-matrix.md
//
// Every task runs testdata/task, which holds its device with `cuda-process --exclusive`. After each test, no job and no
// lease may remain (quiet_test.go). According to the logs of the agents and the emulated drivers, no two jobs or
// processes may have held a device at the same time.
package e2e
