// Package learn copies the summaries of earlier runs from slurmdbd into a repository (Sync), and writes the predictions
// of a repository into the decision table (Write).
//
// The table is a text file that job_submit.lua reads. It begins with a line that contains the generation number. The
// lines of the administrator follow, then a marker line, and then the learned lines: first those with the newest runs.
// This package writes only the generation number and the learned lines. Two programs use it: `caelumd watch` writes
// the table periodically (Loop), and `caelum repo sync` and `caelum repo decisions` run a sync or write the table once.
//
// Sync and Write may be called at any time, as often as necessary, and by any user who can read and write the files. A
// sync without new runs changes nothing, and a table whose content would not change is not written. No job waits for
// this package.
//
// Files:
//
//	decide.go  Write; the learned lines of kind site, user and key; leaves out redundant lines
//	predict.go the prediction for a job from the levels key, user and site: Table.Predict; also for `caelum predict`
//	loop.go    the periodic sync and decisions of the watcher; the minimum pause between them
//	share.go   the users' shares of the decision table if there is not enough room for all learned lines
//	sync.go    Sync: reads runs from slurmdbd in pages of 1 to 32 days; finds the accounting record of each run
//	table.go   reads and replaces the decision table: marker line, the administrator's lines, the GPU models
package learn
