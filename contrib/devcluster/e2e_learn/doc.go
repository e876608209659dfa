// Package e2elearn learns from jobs on a real Slurm. One cluster runs users' unchanged scripts, from the first run with
// the site's default to the tightest slice; another is measured on several profiles. The third holds what Caelum
// believes of slurmdbd, sacct and sacctmgr against the real ones: summaries in the records of arrays, requeued and het
// jobs, whose measures are made up, as the agents there write none. It has no code of its own.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_learn
//
// Needs root, contrib/devcluster/prerequisites and `make all`; takes two minutes.
package e2elearn
