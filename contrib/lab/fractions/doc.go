// Command fractions compares the waits of jobs with one GPU on GPUs without MIG that are used whole, with fixed
// fractions, and with fractions on demand. It prints a Markdown table for contrib/lab/results.md.
//
//	go run ./fractions [options] [LIST]
//
// LIST is a pod list of Alibaba's gpu-v2023 trace (openb_pod_list_*.csv). Without LIST, the jobs resemble those of a
// site (traces.Site).
//
// Files:
//
//	main.go     the options and the table
//	jobs.go     the jobs, and how they slow each other down on a GPU
//	play.go     the simulations; the search for the best fixed fractions
package main
