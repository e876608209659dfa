// Package placetest contains the code that the placement tests share: an oracle, random GPUs, the GPUs of the
// data-driven tests, and the optimum that no policy can beat. No program imports it.
//
// Files:
//
//	notebook.go   GPUs drawn in text (ReadGPUs, Draw)
//	optimum.go    Optimum: the smallest total wait of all schedules, the reference for policies
//	oracle.go     PlainGPU: the rules of MIG and the measures of a GPU, on sets of intervals
//	random.go     random GPUs with busy and idle instances (DrawGPUs), and a check that a layout is legal
package placetest
