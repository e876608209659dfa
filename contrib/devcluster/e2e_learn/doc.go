// Package e2elearn holds what Caelum believes of slurmdbd, sacct and sacctmgr against the real ones: summaries are written into the records of arrays, requeued and het jobs,
// a sync reads them back, and the next job is given what was learned. The runs' measures are made up; the agents of this cluster write none. It has no code of its own.
//
//	go test -tags e2e -v ./contrib/devcluster/e2e_learn
//
// Needs root, contrib/devcluster/prerequisites and `make all`; takes 30 s.
package e2elearn
