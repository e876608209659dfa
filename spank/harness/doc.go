// Package harness tests the SPANK plugin without Slurm.
//
// c/harness.c loads spank_caelum.so as Slurm does, implements the functions that the plugin expects from Slurm, and
// calls the callbacks in the order of a script. The scripts, the leases and the expected actions of the plugin are in
// testdata. The tests use the real Go object, which talks over a real socket to an agent in the test. fakeagent is such
// an agent as a program, for trials on a real Slurm. Nothing in this package is installed.
package harness
