// Package nvmlemulator holds the tests of the NVML emulator, which is written in C (src). They drive it through
// go-nvml, as the agent does.
package nvmlemulator
