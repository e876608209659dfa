// Package usagetest provides a repository and an emulated slurmdbd, both in memory, for tests of package usage and of
// the agent.
//
// Files:
//
//	repository.go  Repository, an implementation of usage.Repository
//	accounting.go  Accounting, an implementation of usage.Accounting
package usagetest
