// Package e2eoracle loads real Slurm clusters with a random mix of jobs, and checks the published offers with package
// oracle.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_oracle
//
// The tests need root and contrib/devcluster/prerequisites. ORACLE_SEED selects another mix. ORACLE_CLUSTER=4x4x300
// selects another cluster (nodes, GPUs per node, jobs). ORACLE_AWAY is the time for which slurmctld is stopped in one
// of the runs, for example 60s. ORACLE_KEEP is a folder for the records of the runs.
package e2eoracle
