// Package sqlite opens Caelum's SQLite databases: the ledger and the repository of runs. Each database is one file with
// mode 0600. Errors include the file's path and a remedy.
//
//	Kind   describes a kind of database: its name, its schema by version, its remedies
//	Open   opens the database at a path; returns an error if the file is damaged or belongs to another program
//	DB     runs transactions and queries
//
// The package never changes a file that is damaged, belongs to another program or was written by a newer release,
// because an administrator may want to examine it. It is up to the caller to handle the file: the agent leaves a
// rejected ledger to the administrator, and package repo sets a rejected repository aside.
//
// Files:
//
//	db.go       Kind; Open, its checks and the migration of the schema; transactions and queries (checkpointPages)
//	schema.go   reads a database's version without changing it, for the check before a downgrade
//	explain.go  errors and their remedies; damaged, foreign and newer files (ErrDamaged, ErrForeign, ErrNewer)
package sqlite
