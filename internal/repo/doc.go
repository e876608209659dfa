// Package repo implements the repository of earlier runs. The repository contains the usage of each run, and a list of
// the summaries that are not in slurmdbd yet.
//
// The repository is one SQLite file, by default /var/lib/caelum/repo.db. On a node, the repository contains the runs
// that the agent of the node observed, the open observations of running jobs, and the summaries that the agent must
// still write into slurmdbd (the outbox). On the host that runs the sync, the repository contains every run of the
// cluster. The package stores only the data that the summary of a run contains (predict.Run.Summary). All repositories
// therefore store the same data about a run, and a sync can restore a lost repository from slurmdbd.
//
// Names, accounts and keys come from users, in some cases through slurmdbd. The package passes these texts to SQLite
// only as parameters of SQL statements, never as a part of a statement. Package predict, not this package, interprets
// the runs.
//
// Files:
//
//	export.go  export and import: one JSON object per line (Line), with a maximum length (maxLine)
//	list.go    lists of scripts and users; forgetting runs; the number of stored runs (keepOfKey, keepFor, keepInAll)
//	open.go    database schema and its versions, default path; opening, and setting a damaged file aside
//	outbox.go  open observations, runs whose summaries may be missing in slurmdbd, notes on the progress of the sync
//	run.go     adds and completes runs; histories of a key or fingerprint (Window); PredictAt for a job
package repo
