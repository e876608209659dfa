package main

import (
	"slices"

	"caelum/internal/mig"
	"caelum/internal/predict"
)

// rule names the profile for the next run, by the runs so far.
type rule struct {
	name   string
	told   bool // of which runs were killed for memory, as the state killed; Caelum has to find out
	choose func(n node, runs []predict.Run) string
}

// killed is the state that rules are told of; the peak is what the slice had then.
const killed = "KILLED"

// node is what there is to choose from.
type node struct {
	board *mig.Model
	all   mig.Layout
	whole string
}

// newNode has the profiles of an A100-40GB that are on offer by default.
func newNode() (node, error) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return node{}, err
	}
	n := node{board: b.Select(mig.Plain)}
	for k, p := range n.board.Profiles {
		n.all |= n.board.OfProfile(k)
		if p.Compute == n.board.Compute() {
			n.whole = p.Name
		}
	}
	return n, nil
}

// memory is a profile's, in MiB.
func (n node) memory(profile string) float64 {
	k, _ := n.board.ProfileIndex(profile)
	return n.board.Profiles[k].Memory()
}

// tightest holds so many MiB; the whole GPU where none does.
func (n node) tightest(mib float64) string {
	if p, ok := (predict.Need{PeakMiB: mib, Busy: -1}).On(n.board, n.all); ok {
		return p
	}
	return n.whole
}

func wholeGPU() rule {
	return rule{"always the whole GPU", true, func(n node, _ []predict.Run) string { return n.whole }}
}

// simple takes the highest of the last so many runs that completed or were killed, 0: all, and a margin.
func simple(name string, last int, margin float64) rule {
	return rule{name, true, func(n node, runs []predict.Run) string {
		highest, seen := 0.0, 0
		for k := len(runs) - 1; k >= 0 && (last == 0 || seen < last); k-- {
			switch runs[k].State {
			case "COMPLETED", "TIMEOUT", killed:
				highest, seen = max(highest, runs[k].PeakMiB), seen+1
			}
		}
		if seen == 0 {
			return n.whole
		}
		return n.tightest(highest * (1 + margin))
	}}
}

// learned is Caelum's.
func learned(name string, site predict.Site) rule {
	return rule{name, false, func(n node, runs []predict.Run) string {
		need, ok := predict.Predict(predict.History{Level: predict.ByKey, Runs: runs}, site)
		if !ok {
			return need.AtLeast(n.board, n.all, n.whole)
		}
		if p, ok := need.On(n.board, n.all); ok {
			return p
		}
		return n.whole
	}}
}

// informed is Caelum told which runs were killed for memory, and that the others that failed were not.
func informed(name string, site predict.Site) rule {
	r := learned(name, site)
	find := r.choose
	r.told = true
	r.choose = func(n node, runs []predict.Run) string {
		known := slices.Clone(runs)
		for k := range known {
			switch known[k].State {
			case "FAILED":
				known[k].State = "CANCELLED"
			case killed:
				known[k].State = "FAILED"
			}
		}
		return find(n, known)
	}
	return r
}
