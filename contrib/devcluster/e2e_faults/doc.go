// Package e2efaults breaks things under running jobs on a real Slurm, and shows what of it a user or an admin would
// see. Only the GPUs are emulated. It has no code of its own.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_faults                     # three rounds of restarts, under three minutes
//	FAULTS_ROUNDS=10 go test -tags e2e -v -timeout 20m -run Restarts ./contrib/devcluster/e2e_faults
//	FAULTS_KILLS=100 go test -tags e2e -v -timeout 20m -run Recovery ./contrib/devcluster/e2e_faults
//
// Needs root, contrib/devcluster/prerequisites and `make all`. The times that it prints are measured and not
// judged. Package clustertest names the variables that change how its clusters run.
package e2efaults
