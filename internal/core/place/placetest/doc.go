// Package placetest provides code shared by the placement tests: an oracle, random GPUs, a parser for the GPUs in
// datadriven tests, and the optimum that no policy can beat. Only tests import it.
//
// Files:
//
//	notebook.go   GPUs drawn in text (ReadGPUs, Draw)
//	optimum.go    Optimum: the smallest total wait of all possible schedules, the reference for policies
//	oracle.go     PlainGPU: MIG's rules and a GPU's measures, based on sets of intervals
//	random.go     random GPUs with busy and idle instances (DrawGPUs); a check that a layout is legal
package placetest
