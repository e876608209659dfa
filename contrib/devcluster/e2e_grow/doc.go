// Package e2egrow tests, on a real Slurm cluster, jobs that get a larger slice after or before they run out of GPU
// memory. Only the GPUs are emulated.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_grow
//
// The tests need root, contrib/devcluster/prerequisites and `make all`. The comment of package clustertest describes
// the environment variables that configure the clusters.
package e2egrow
