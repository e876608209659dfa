// Package e2efaults tests how faults affect users and administrators while jobs are running on a real Slurm cluster.
// Only the GPUs are emulated.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_faults            # three rounds of restarts, under three minutes
//	FAULTS_ROUNDS=10 go test -tags e2e -v -timeout 20m -run Restarts ./contrib/devcluster/e2e_faults
//	FAULTS_KILLS=100 go test -tags e2e -v -timeout 20m -run Recovery ./contrib/devcluster/e2e_faults
//
// The tests need root, contrib/devcluster/prerequisites and `make all`. They print the measured times but do not check
// them. The environment variables that configure the clusters are described in package clustertest.
package e2efaults
