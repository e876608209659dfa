// Package e2e holds the tests of the whole on a real Slurm: unchanged scripts by an ordinary user, and what slurmctld,
// the agents and the GPUs make of them. Only the GPUs are emulated. It has no code of its own.
//
//	go test -tags e2e ./contrib/devcluster/e2e              # needs root, contrib/devcluster/prerequisites and `make all`
//	go test -tags e2e ./contrib/devcluster/e2e -rewrite     # writes docs/script-matrix.md as measured
//
// Every task runs testdata/task, which holds its device with `cuda-process --exclusive`. After each test the cluster
// must be as if nothing had run (quiet_test.go), and the agents' and the drivers' own logs are searched for a device
// that two jobs or two processes held at once.
package e2e
