// Package clients runs programs that other projects wrote for real GPUs, without modification, on the NVML emulator. It
// has only tests. README.md lists the programs and the GPU models.
package clients
