// Package e2egrow tests jobs that get a larger slice after their GPU memory ran out, or before, on a real Slurm
// cluster. Only the GPUs are emulated.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_grow
//
// The tests need root, contrib/devcluster/prerequisites and `make all`. The comment of package clustertest describes
// the environment variables that change the clusters.
package e2egrow
