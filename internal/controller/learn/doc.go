// Package learn copies the summaries of earlier runs from slurmdbd into a repository (Sync), and writes a repository's
// predictions into the decision table (Write).
//
// The table is a text file that job_submit.lua reads. Its first line contains the generation number. It is followed by
// the administrator's lines, a marker line and the learned lines, sorted by their newest runs. Package learn writes
// only the generation number and the learned lines. `caelum-watch` writes the table periodically (Loop). `caelum repo
// sync` runs one sync, and `caelum repo decisions` writes the table once.
//
// Sync and Write may be called at any time, as often as necessary, and by any user who can read and write the files. A
// sync without new runs has no effect, and Write does not rewrite a table whose content would not change. Jobs never
// wait for package learn.
//
// Files:
//
//	args.go    the args line of a key, whose runs' memory follows a number in their arguments; the prediction from it
//	decide.go  Write; creates the learned lines for sites, users, keys and arguments, except redundant ones
//	predict.go a job's prediction from the key, user and site levels: Table.Predict; also for `caelum predict`
//	similar.go the prediction for a script's first run, at the name and owner levels, from the user's other scripts
//	loop.go    the watcher's periodic syncs and decisions; the minimum pause between them
//	set.go     SetLine and CheckTable: the administrator's changes and checks of the decision table
//	share.go   each user's share of the decision table when not all learned lines fit
//	state.go   State: whether learning is on, since when, and from how many runs (stuckAfter)
//	sync.go    Sync: reads runs from slurmdbd in pages of 1 to 32 days; finds the accounting record of each run
//	move.go    moves the table to the watcher's directory and leaves a link (MoveTable)
//	table.go   reads and replaces the decision table: marker line, the administrator's lines, the GPU models
package learn
