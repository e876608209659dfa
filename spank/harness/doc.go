// Package harness tests the SPANK plugin without Slurm.
//
// c/harness.c loads spank_caelum.so as Slurm does, stands in for the functions that it expects of Slurm and plays
// callbacks in the order of a script; the scripts, the leases and what the plugin did are in testdata. The Go object is
// the real one and talks over a real socket to an agent that the test plays. fakeagent is that agent as a program, for
// trials on a real Slurm. Nothing here is installed.
package harness
