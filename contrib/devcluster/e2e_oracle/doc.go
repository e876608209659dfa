// Package e2eoracle loads real Slurm clusters with a random mix of jobs and has package oracle judge what was
// published.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_oracle
//
// Needs root and contrib/devcluster/prerequisites. ORACLE_SEED chooses another mix, ORACLE_CLUSTER=4x4x300 another
// cluster (nodes, GPUs of each, jobs), ORACLE_AWAY for how long slurmctld is away in one of the runs (60s), ORACLE_KEEP
// a folder for what the runs left behind.
package e2eoracle
