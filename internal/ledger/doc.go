// Package ledger stores the state that must survive a crash of the agent: the instances that the agent created, the
// leases of jobs on these instances, and the intents of hardware calls in progress. The package never decides anything
// and never calls the driver.
//
// The agent writes an intent before each hardware call and settles the intent after the call. After a crash the agent
// compares the GPU with the intents that were not settled.
//
// Files:
//
//	ledger.go  instances, leases, intents and former users: their reads and writes, one transaction for each change
//	open.go    the database schema and its versions; opening, its lock timeout (5 s) and the remedies for a bad file
package ledger
