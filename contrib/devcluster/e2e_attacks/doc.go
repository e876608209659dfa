// Package e2eattacks tests attacks of a user without privileges on other users and the site, on a real Slurm. Each test
// is one attack of docs/security.md. Only the GPUs are emulated. The package contains only tests.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_attacks
//
// The tests need root, contrib/devcluster/prerequisites and `make all`.
package e2eattacks
