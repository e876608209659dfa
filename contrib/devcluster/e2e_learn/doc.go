// Package e2elearn tests how Caelum learns from jobs on a real Slurm cluster. The tests use three clusters. The first
// runs users' unchanged scripts, from the first run with the site's default profile to the smallest sufficient slice.
// The second measures a script on several profiles. The third checks Caelum's assumptions about slurmdbd, sacct and
// sacctmgr with artificial summaries in the records of arrays, requeued jobs and het jobs; the agents of this cluster
// do not write any summaries themselves.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_learn
//
// The tests need root, contrib/devcluster/prerequisites and `make all`, and take two minutes.
package e2elearn
