// Package repo is the profile repository: what earlier runs of each piece of work used, and what of that is still on
// its way to slurmdbd.
//
// It is one SQLite file, by default /var/lib/caelum/repo.db. On a node it holds the runs that the agent saw there, the
// open observations of running jobs, and the summaries that slurmdbd does not have yet (the outbox); on the host of a
// sync it holds every run of the cluster. What stands of a run is what its summary says (predict.Run.Summary), so both
// say the same of it, and a repository that is lost is made again from slurmdbd.
//
// Names, accounts and keys in it come from users, by way of slurmdbd: they are parameters of statements, never part of
// one. The package stores and answers; what a history means, package predict says.
package repo
