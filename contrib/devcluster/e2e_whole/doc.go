// Package e2ewhole tests jobs with full GPUs alongside jobs with slices, on GPUs that support MIG and on GPUs that do
// not, on a real Slurm cluster. Only the GPUs are emulated.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_whole
//
// The tests need root, contrib/devcluster/prerequisites and `make all`. The environment variables that configure the
// clusters are described in package clustertest.
package e2ewhole
