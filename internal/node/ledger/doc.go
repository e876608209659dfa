// Package ledger stores the state that must survive a crash of the agent: the instances that the agent created, the
// leases of jobs on these instances, and the intents of unfinished driver calls. It makes no decisions and never
// calls the driver.
//
// The agent writes an intent before each driver call that changes a GPU, and settles the intent after the call. After a
// crash, the agent checks the GPUs for the effects of the calls whose intents were not settled.
//
// Files:
//
//	ledger.go  instances, leases, intents and former users: reads them, and changes them in one transaction each. A
//	           lease is stored as the JSON text of api.Lease
//	open.go    the database schema and its versions; opening; the lock timeout (5 s); remedies for an invalid file
package ledger
