// Package nvmlemulator contains the tests of the NVML emulator, which is written in C (src). The tests call the
// emulator through go-nvml, as the agent does.
package nvmlemulator
