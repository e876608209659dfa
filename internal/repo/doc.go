// Package repo is the repository of earlier runs. It stores the usage of each run, and the list of the summaries that
// slurmdbd does not have yet.
//
// The repository is one SQLite file, by default /var/lib/caelum/repo.db. On a node it holds the runs that the agent
// observed there, the open observations of running jobs, and the summaries still to be written to slurmdbd (the
// outbox). On the host that runs the sync it holds every run of the cluster. A run is stored exactly as its summary
// describes it (predict.Run.Summary), so both repositories agree, and a lost repository can be restored from slurmdbd.
//
// Names, accounts and keys come from users by way of slurmdbd. They are always parameters of SQL statements, never part
// of the text. The package never interprets a history: package predict does.
//
// Files:
//
//	export.go  export and import: one JSON object per line (Line), at most 64 KiB each
//	list.go    lists of scripts and users; forgetting runs; number of runs kept (keepOfKey 128, keepFor, keepInAll)
//	open.go    database schema and its versions, default path; opening, and setting a damaged file aside
//	outbox.go  open observations, the runs whose summary slurmdbd may lack, and notes on the progress of the sync
//	run.go     adds and completes runs; histories of a key or fingerprint (Window 64 runs); Predict for a job
package repo
