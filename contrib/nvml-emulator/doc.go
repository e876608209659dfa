// Package nvmlemulator contains the tests for the NVML emulator, which is written in C (src). The tests call it through
// go-nvml, as the agent does.
package nvmlemulator
