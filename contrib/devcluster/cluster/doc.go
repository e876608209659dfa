// Package cluster starts private Slurm clusters with emulated MIG nodes for tests and demonstrations.
//
// The package runs the script contrib/devcluster/devcluster, which needs root and the packages that
// contrib/devcluster/prerequisites installs. The script never writes outside the cluster's directory. Any number of
// clusters can run at the same time.
//
// Files:
//
//	cluster.go  Options, one for each option of `devcluster up`; start, stop, commands on nodes, units, logs
package cluster
