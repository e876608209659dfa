// Package learn copies the summaries of earlier runs from slurmdbd into a repository (Sync), and writes the predictions
// of a repository into the decision table (Write).
//
// The table is a text file that job_submit.lua reads. The table begins with a line that contains the generation number.
// The lines of the administrator follow. After these lines, the table contains a marker line and the learned lines,
// sorted by their newest runs. Package learn writes only the generation number and the learned lines. `caelumd watch`
// writes the table periodically (Loop). `caelum repo sync` runs one sync, and `caelum repo decisions` writes the table
// once.
//
// Sync and Write may be called at any time, as often as necessary, and by any user who can read and write the files. A
// sync without new runs changes nothing. Write does not write a table whose content would not change. No job waits for
// package learn.
//
// Files:
//
//	decide.go  Write; creates the learned lines of kind site, user and key, except redundant lines
//	predict.go the prediction for a job from the levels key, user and site: Table.Predict; also for `caelum predict`
//	measured.go the profiles that `caelum profile-job --apply` chose; later runs that contradict them
//	loop.go    the periodic sync and decisions of the watcher; the minimum pause between them
//	share.go   each user's share of the decision table if not all learned lines fit
//	sync.go    Sync: reads runs from slurmdbd in pages of 1 to 32 days; finds the accounting record of each run
//	table.go   reads and replaces the decision table: marker line, the administrator's lines, the GPU models
package learn
