// Package gputest creates a node with emulated GPUs for a test. Tests load the emulator's libnvidia-ml.so.1
// (contrib/nvml-emulator) with the same code that loads a real driver's library. Each node has its own state.
//
// Files:
//
//	fakes.go    FakeLimits and FakeGroups: the driver's memory limits and the cgroups of jobs, in memory
//	gputest.go  Node: a node with emulated GPUs
package gputest
