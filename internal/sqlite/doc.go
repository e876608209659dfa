// Package sqlite opens the SQLite databases of Caelum, the ledger and the repository of runs. Each is one file with
// mode 0600. The errors name the file and the remedy.
//
//	Kind   describes a kind of database: its name, its schema by version, its remedies
//	Open   opens the database at a path, or fails if the file is damaged or belongs to another program
//	DB     runs transactions and queries
//
// The package never changes a file that is damaged, belongs to another program or was written by a newer release,
// because an administrator may want to examine the file. The caller decides about the next step. The agent leaves the
// ledger to the administrator, and package repo sets the repository aside.
//
// Files:
//
//	db.go       Kind; Open, its checks and the migration of the schema; transactions and queries; checkpointPages 64
//	schema.go   the version of a database that stays unchanged, for the check before a downgrade
//	explain.go  the error texts and their remedies; damaged, foreign and newer files (ErrDamaged, ErrForeign, ErrNewer)
package sqlite
