// Package usage observes how running jobs use their slices. It samples memory, utilisation and processes, stores the
// usage of each run in the repository, and writes a summary of the run into slurmdbd. The next run of a job gets a
// slice that fits this usage. The package never changes a GPU, a lease or a job.
//
// Prologs and epilogs begin and end an observation ([Monitor.Begin], [Monitor.End]), and do nothing else in this
// package. They never wait for a disk or for slurmdbd.
//
// Files:
//
//	monitor.go      the Monitor: options, start and stop; an observation from lease to release
//	sample.go       the samplers, one for each GPU
//	observation.go  the usage of one run; continues the observation of an earlier agent (minObserved 1 s)
//	slice.go        the histogram of a slice's samples: memory quantiles, utilisation (usageBins 128)
//	store.go        writes observations and ended runs into the repository (storeInterval 1 minute, maxEnded 10,000)
//	recorder.go     writes summaries into slurmdbd and reads them back; pauses from 5 s to an hour, up to 730 attempts
//	repository.go   the interfaces to the repository and to slurmdbd
package usage
