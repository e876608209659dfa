// Package e2eattacks tests attacks on a real Slurm. In each test, a user without privileges carries out one attack of
// docs/security.md on other users or the site. Only the GPUs are emulated. The package contains only tests.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_attacks
//
// The tests need root, contrib/devcluster/prerequisites and `make all`.
package e2eattacks
