// Package metrics provides the state of a node's agent to Prometheus, as a text file for node_exporter and on an
// optional HTTP port. It depends on neither Slurm nor NVML: the agent provides its state as a State and reports events
// through the methods of Metrics. The watcher has no metrics. No metric has a label for a job, a user or an account,
// because every user on the host can read the metrics.
//
// Files:
//
//	metrics.go   Metrics: New, the events that the agent reports, and their counters and histograms
//	state.go     State, which the agent provides at each reading, and its metrics
//	page.go      the text of all metrics, at most once a second (pageInterval)
//	textfile.go  writes the text to a file, for node_exporter (fileInterval)
//	listener.go  serves the text over HTTP (maxConnections, timeouts)
package metrics
