// Package overview describes the managed nodes of a cluster from slurmctld's node records alone: the state that each
// agent publishes in Extra, and the counts of gres/mig. `caelum status` and `caelum top` print the result. They need no
// agent, and every user who is permitted to read the node records sees the same result.
//
// A node record shows neither the UUIDs of the slices nor the jobs that hold them. An agent's own status (package
// api) shows both.
//
// The package is pure: it uses no clock and performs no I/O.
package overview
