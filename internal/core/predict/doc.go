// Package predict uses earlier runs to compute the memory, compute slices and run time that a job needs, and selects a
// profile for that need. It also computes a job's key and script fingerprint, and reads and writes the summary of a run
// in an accounting record. The package is pure: it reads no clock and does no I/O. Package repo stores the runs.
//
//	Run, Summary      a run, and its summary in an accounting record
//	Key, Fingerprint  determine which runs are runs of the same job or script
//	Numbers, Steps    the numbers in a script's arguments, and the profiles that follow from one of them
//	Predict, Need     the need of a job, and the profile that satisfies it
//	PredictShared     the need of a job, from the runs of other users
//	Expect            the expected duration of a running job, from its earlier runs
//	Series, Forecast  the memory of a running job over time, and the forecast of its peak
//	Larger, RanOut    the next profile of a job whose slice was too small; whether a run ran out of memory
//	Partitions        the best profiles for a machine-learning model, from its measurements
//
// Files:
//
//	attempt.go    decides which runs were complete; merges the records of a run on several nodes; the thresholds
//	compute.go    compute slices: Amdahl's law, busy share from run times or utilisation, max_slowdown, time limits
//	failure.go    decides which failed runs ran out of memory, from the shares of runs that fail for other
//	              reasons and for lack of memory
//	forecast.go   Series.Forecast: the peak memory of a running job, from the growth in the last half of its run, and
//	              whether it will exceed the slice (Exceeds)
//	grow.go       Growth, Larger, RanOut: jobs that get a larger profile after they have started
//	key.go        job key and script fingerprint; Numbers; the number of hashed bytes of name (256), script (4096)
//	              and arguments (1024)
//	limit.go      Line.InTime: the profile that a job requests so that it ends within its time limit
//	need.go       Predict, Need; Levels; the settings of a site and their defaults; Need.On, which selects a profile
//	peak.go       memory: the runs' peaks, the margin, peak_quantile, runs with too little memory; Need.Why
//	relation.go   Related, Relation: memory that follows a number in a script's arguments; the steps of an args line
//	run.go        Run; the text of its summary in an accounting record (caelum:run=...): format and reader
//	runtime.go    expected run time and its quantiles, from up to 20 complete runs; Expect, for a running job
//	series.go     Series: the memory of a slice over time, in at most 128 intervals
//	shared.go     the prediction from other users' runs: the upper median, with the same weight for each user
//	similar.go    the prediction for a script without runs, from its user's other scripts
//	steps.go      Steps: the content of an args line of the decision table, and its form
//	xids.go       Xid errors of a run: the form of their text (AddXid, ParseXids), maxXids
package predict
