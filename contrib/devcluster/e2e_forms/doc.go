// Package e2e_forms compares the results of requests in Slurm with and without Caelum, for combinations of options that
// request GPUs, tasks, CPUs and memory. It runs on a real Slurm, on nodes with two GPUs and the default profile
// 7g.40gb, so that every request for GPUs should have the same result on both clusters.
//
// Files in testdata:
//
//	gpus, tasks, resources, others   the options, one set per line; a combination has one line of each file
//	run                              combinations that are also run, whose jobs must get the same
//	differences                      documented differences: the result with Caelum (accepts, refuses or gets), a
//	                                 regular expression for the options, and the reason, separated by tabs
//	scripts/                         the directives of users' scripts, from public repositories and the templates of
//	                                 submitit, dask-jobqueue, Nextflow and batchspawner, without names
//	sites/                           the configurations of sites: files, requests, and the arguments of each conversion
//	                                 (GPU model, GPUs per node, nodes, partition)
//
// Adding a line, a script or a site adds a case.
package e2e_forms
