// Package e2eattacks lets an ordinary user attack other users and the site on a real Slurm: each test is one attack of
// docs/security.md. Only the GPUs are emulated. It has no code of its own.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_attacks
//
// Needs root, contrib/devcluster/prerequisites and `make all`.
package e2eattacks
