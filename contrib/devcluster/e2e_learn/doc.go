// Package e2elearn tests learning from jobs on a real Slurm. The first cluster runs users' unchanged scripts, from the
// first run with the site's default to the smallest sufficient slice. The second measures a script on several profiles.
// The third checks Caelum's assumptions about slurmdbd, sacct and sacctmgr with summaries in the records of arrays,
// requeued jobs and het jobs. Its summaries are artificial, because its agents write none. The package contains only
// tests.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_learn
//
// The tests need root, contrib/devcluster/prerequisites and `make all`, and take two minutes.
package e2elearn
