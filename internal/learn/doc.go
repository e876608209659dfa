// Package learn reads earlier runs from slurmdbd into a repository (Sync), and writes the predictions of a repository
// into the decision table (Write).
//
// Both may run at any time, as often as necessary, and as any user who can read and write the
// files. A sync without new runs changes nothing, and a table with the same content is not written
// again. No job ever waits for this package.
//
// Files:
//
//	decide.go  the learned lines: site, user, key; which of them are left out as redundant; Write
//	predict.go what a job gets from the levels key, user and site: Table.Predict, for the lines and for `caelum predict`
//	loop.go    the periodic sync and decisions of the watcher; its rest is 10 times as long as its work (idle)
//	share.go   equal shares of users if the decision table has no room for all learned lines
//	sync.go    reads runs from slurmdbd: pages of 1 to 32 days, overlaps; finds the record of a summary
//	table.go   reads and replaces the decision table: marker line, the administrator's lines, its GPU models
package learn
