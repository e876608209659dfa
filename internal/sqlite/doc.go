// Package sqlite opens the databases that Caelum keeps, each in one file of root's, and says what is wrong with one and
// what to do about it.
//
//	Kind   what a database is: its name, its schema by version
//	Open   the database at a path, whole and of that kind, or an error
//	DB     transactions and queries, whose errors are explained
//
// What somebody wants to look into is not changed: a file that is damaged, of another program or of a newer release is
// refused as it is. What then becomes of it is the caller's: the ledger's is left to an admin, the repository's is set
// aside.
package sqlite
