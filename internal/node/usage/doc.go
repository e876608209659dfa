// Package usage observes how running jobs use their slices. It samples memory, utilisation and processes, stores the
// usage of each run in the repository, and writes a summary of the run to slurmdbd. Package predict uses these data to
// predict the slice sizes that later runs need. Package usage never changes a GPU, a lease or a job.
//
// A prolog begins an observation ([Monitor.Begin]), and an epilog ends it ([Monitor.End]). Neither call waits for a
// disk or for slurmdbd.
//
// Files:
//
//	monitor.go      the Monitor: options, start and stop; an observation from lease to release
//	sample.go       the samplers, one for each GPU
//	forecast.go     forecasts of the peak memory (forecastEvery); calls Options.Foreseen (foreseenEvery)
//	report.go       reports from a job's processes: unused memory of the allocator, iterations, OutOfMemory; NoteXid,
//	                MarkEnd
//	observed.go     runs on a node that Caelum does not manage: jobs, keys, records (maxMissed, maxScripts)
//	observer.go     the Observer, for `caelumd observe`: samples the GPUs and finds the jobs of their processes
//	observation.go  the usage of one run; continues the observation of an earlier agent (minObserved)
//	slice.go        the histogram of a slice's samples: memory quantiles, utilisation (usageBins)
//	store.go        writes observations and finished runs to the repository (storeInterval, maxEnded, pruneEvery)
//	recorder.go     writes summaries to slurmdbd and reads them back; the number of attempts and the pauses
//	again.go        rewrites summaries after a restart of slurmctld, which may remove them
//	repository.go   the interfaces to the repository and to slurmdbd
package usage
