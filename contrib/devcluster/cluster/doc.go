// Package cluster starts private Slurm clusters with emulated MIG nodes for tests and demonstrations.
//
// It runs the contrib/devcluster/devcluster script, which must run as root, needs the packages installed by
// contrib/devcluster/prerequisites, and never writes outside the cluster's directory. Any number of clusters can run at
// the same time.
//
// Files:
//
//	cluster.go  Options, one for each option of `devcluster up`; start, stop, commands on nodes, units, logs
//	enter.go    runs commands in a node's namespaces without the script, which would take five times as long
package cluster
