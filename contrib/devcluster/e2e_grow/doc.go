// Package e2egrow tests, on a real Slurm cluster, jobs that are given a larger slice before or after they run out of
// GPU memory. Only the GPUs are emulated.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_grow
//
// The tests need root, contrib/devcluster/prerequisites and `make all`. The environment variables that configure the
// clusters are described in package clustertest.
package e2egrow
