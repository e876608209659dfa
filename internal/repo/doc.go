// Package repo implements the repository of earlier runs. The repository contains the usage of each run, and a list of
// the summaries that are not in slurmdbd yet.
//
// The repository is one SQLite file, by default /var/lib/caelum/repo.db. On a node, it contains the runs that the agent
// observed there, the open observations of running jobs, and the summaries that must still be written into slurmdbd
// (the outbox). On the host that runs the sync, it contains every run of the cluster. A run is stored exactly as its
// summary describes it (predict.Run.Summary). Both repositories are therefore consistent, and a lost repository can be
// restored from slurmdbd.
//
// Names, accounts and keys come from users, in some cases through slurmdbd. They are always parameters of SQL
// statements, never a part of the statements. The package does not interpret the runs, because package predict does
// this.
//
// Files:
//
//	export.go  export and import: one JSON object per line (Line), with a maximum length (maxLine)
//	list.go    lists of scripts and users; forgetting runs; the number of stored runs (keepOfKey, keepFor, keepInAll)
//	open.go    database schema and its versions, default path; opening, and setting a damaged file aside
//	outbox.go  open observations, the runs whose summaries slurmdbd may lack, and notes on the progress of the sync
//	run.go     adds and completes runs; histories of a key or fingerprint (Window); PredictAt for a job
package repo
