// Package e2eattacks tests attacks on a real Slurm cluster. In each test, an unprivileged user runs one of the attacks
// in docs/security.md against other users or the site. Only the GPUs are emulated.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_attacks
//
// The tests need root, contrib/devcluster/prerequisites and `make all`.
package e2eattacks
