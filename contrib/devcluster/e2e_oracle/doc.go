// Package e2eoracle runs a random mix of jobs on real Slurm clusters and checks the published offers with package
// oracle.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_oracle
//
// The tests need root and contrib/devcluster/prerequisites. ORACLE_SEED selects another mix of jobs.
// ORACLE_CLUSTER=4x4x300 sets the numbers of nodes, of GPUs per node, and of jobs. ORACLE_AWAY sets the time for which
// one test stops slurmctld, for example 60s. ORACLE_KEEP names a directory for the records of the runs.
package e2eoracle
