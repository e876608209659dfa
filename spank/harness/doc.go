// Package harness tests the SPANK plugin without Slurm.
//
// c/harness.c loads spank_caelum.so in the same way as Slurm, implements the functions that the plugin expects from
// Slurm, and calls the callbacks in the order given by a script. The scripts, the leases and the plugin's expected
// actions are in testdata. The tests use the real Go object, which calls a test agent in the test process over a Unix
// socket. fakeagent is a test agent for experiments on a real Slurm cluster. Nothing in this package is installed by
// `make install`.
package harness
