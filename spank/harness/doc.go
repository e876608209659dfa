// Package harness tests the SPANK plugin without Slurm.
//
// c/harness.c loads spank_caelum.so in the same way as Slurm, implements the functions that the plugin expects from
// Slurm, and calls the callbacks in the order of a script. The scripts, the leases and the expected actions of the
// plugin are in testdata. The tests use the real Go object, which calls an agent in the test process over a real
// socket. The program fakeagent is such an agent for experiments with a real Slurm. No part of this package is
// installed.
package harness
