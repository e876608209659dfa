// Package predict uses earlier runs to compute the memory, compute slices and run time that a job needs, and selects a
// profile for that need. It also computes the key and the script fingerprint of a job, and reads and writes the summary
// of a run in an accounting record. The package is pure: it uses no clock and no I/O. It never stores runs (package
// repo does) and never changes a job.
//
//	Run, Summary      a run, and its text in an accounting record
//	Key, Fingerprint  which runs count as runs of the same job or script
//	Predict, Need     the need of a job, and the profile that satisfies it
//	PredictShared     the same, from the runs of other users
//	Ends              how long running jobs are expected to run
//	Partitions        the profile for a machine-learning model, from its measurements
//
// Files:
//
//	attempt.go    which runs are complete or killed for memory: shares nearlyFull, usable, steady, asFar, sameLimit
//	compute.go    compute slices: Amdahl's law, busy share from run times or utilisation, max_slowdown, time limits
//	ends.go       Ends: expected duration of a running job from ended jobs (the last 4096, from 32 on)
//	key.go        job key and script fingerprint; the number of hashed bytes of name (256) and script (4096)
//	need.go       Predict, Need; Levels; settings of a site (margin 5%, 3 users, Window 5 runs, Quantile 0.15); On
//	partition.go  Partitions: the best profiles for a model with measured batch sizes, for `caelum profile-job`
//	peak.go       memory: the peak that counts, the margin on it, runs with too little memory; the sentence Why
//	run.go        Run; the text of its summary, caelum:run=..., in an accounting record: format and reader
//	runtime.go    expected run time and its quantiles: timeWindow 20 runs, priorSigma 0.2
//	shared.go     the prediction from other users' runs: each user counts once, the upper median decides
package predict
