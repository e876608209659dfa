// Package repo implements the repository of earlier runs, which holds the usage of each run and a list of the
// summaries that are not in slurmdbd yet.
//
// The repository is one SQLite file, by default /var/lib/caelum/repo.db. On a node, it holds the runs that the node's
// agent observed, the open observations of running jobs, and the summaries that the agent still has to write to
// slurmdbd (the outbox). On the host that runs the sync, it holds every run on the cluster. The package stores only
// data that is also in a run's summary (predict.Run.Summary), so all repositories contain the same data about a run,
// and a sync can restore a lost repository from slurmdbd.
//
// Names, accounts and keys come from users, in some cases through slurmdbd. They are passed to SQLite only as
// parameters of SQL statements, never as part of a statement. Interpreting the runs is left to package predict.
//
// Files:
//
//	export.go  export and import: one JSON object per line (Line), with a maximum length (maxLine)
//	list.go    lists scripts and users; forgets runs; limits the stored runs (keepOfKey, keepFor, keepInAll)
//	observed.go runs that `caelumd observe` recorded: one JSON object per line (Observed); the file (maxObserved)
//	open.go    database schema and its versions; default path; opening, and setting a damaged file aside
//	outbox.go  open observations; runs whose summaries may be missing from slurmdbd; notes on the sync's progress
//	run.go     adds and completes runs; the history of a key or fingerprint (Window); PredictAt for a job
package repo
