// Package harness tests the SPANK plugin without Slurm.
//
// c/harness.c loads spank_caelum.so like Slurm, implements the functions that the plugin expects from Slurm, and calls
// the callbacks in the order of a script. testdata contains the scripts, the leases and the expected actions of the
// plugin. The tests use the real Go object, which calls a test agent in the test process over a Unix socket. The
// program fakeagent is a test agent for experiments with a real Slurm. make install installs no part of this package.
package harness
