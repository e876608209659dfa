// Package nvmlemulator tests the NVML emulator, which is written in C (src). Like the agent, the tests call it through
// go-nvml.
package nvmlemulator
