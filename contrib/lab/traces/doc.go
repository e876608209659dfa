// Package traces reads the traces of research papers, and generates a workload that resembles that of a real site. As
// in package trace, errors name the file, the line and the reason, and each reader counts the jobs that it leaves out.
//
// Files:
//
//	alibaba.go  Alibaba's gpu-v2023 pod lists, as shares of a GPU or with GRMU's profiles
//	days.go     Alibaba's pod lists as workloads of days in random order; Scale
//	miso.go     the measurements of the MISO paper
//	site.go     the synthetic workload Site: bursts, durations, time limits
//	table.go    rows of comma-separated values; numbers
package traces
