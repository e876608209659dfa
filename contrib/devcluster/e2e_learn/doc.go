// Package e2elearn tests how Caelum learns from jobs on a real Slurm cluster. The tests use three clusters. On the
// first, users run unchanged scripts, whose first run is on the site's default profile and whose last run is on the
// smallest sufficient slice. On the second, a script is measured on several profiles. On the third, the tests check
// Caelum's assumptions about slurmdbd, sacct and sacctmgr with artificial summaries in the records of arrays, requeued
// jobs and het jobs; the agents of this cluster do not write any summaries themselves.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_learn
//
// The tests need root, contrib/devcluster/prerequisites and `make all`, and take two minutes.
package e2elearn
