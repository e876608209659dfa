// Package e2e tests Caelum on a real Slurm: it submits unchanged scripts of a user, and checks the results in
// slurmctld, the agents and the GPUs. Only the GPUs are emulated. The package contains only tests. They need root,
// contrib/devcluster/prerequisites and `make all`.
//
//	go test -tags e2e ./contrib/devcluster/e2e
//	go test -tags e2e ./contrib/devcluster/e2e -rewrite     # writes the measured docs/script-matrix.md
//
// Every task runs testdata/task, which holds its device with `cuda-process --exclusive`. After each test no job or
// lease may be left (quiet_test.go), and the logs of the agents and the emulated drivers must not show a device that
// two jobs or two processes held at the same time.
package e2e
