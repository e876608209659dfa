// Package nvmlemulator tests the NVML emulator, written in C (src), through go-nvml, as the agent uses it.
package nvmlemulator
