package main

import (
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// rule chooses the profile for a job's next run based on its earlier runs.
type rule struct {
	name   string
	kills  bool // true if the rule knows which runs ran out of memory (the killed state)
	choose func(n node, runs []predict.Run) string
}

// killed is the state of runs that ran out of memory. Only rules with kills set to true see this state. PeakMiB of a
// killed run is 1 MiB more than the memory of its slice.
const killed = "KILLED"

// node holds the profiles that a rule chooses from.
type node struct {
	model *mig.Model
	all   mig.Layout
	whole string
}

// newNode returns the profiles that an A100-40GB offers by default.
func newNode() (node, error) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return node{}, err
	}
	n := node{model: b.Select(mig.Plain)}
	for k, p := range n.model.Profiles {
		n.all |= n.model.OfProfile(k)
		if p.Compute == n.model.Compute() {
			n.whole = p.Name
		}
	}
	return n, nil
}

// memory returns the memory of a profile in MiB.
func (n node) memory(profile string) float64 {
	k, _ := n.model.ProfileIndex(profile)
	return n.model.Profiles[k].Memory()
}

// tightest returns the smallest profile with at least mib MiB of memory or, if there is no such profile, the whole GPU.
func (n node) tightest(mib float64) string {
	if p, ok := (predict.Need{PeakMiB: mib, Busy: predict.UnknownBusy}).On(n.model, n.all); ok {
		return p
	}
	return n.whole
}

func wholeGPU() rule {
	return rule{"always the whole GPU", true, func(n node, _ []predict.Run) string { return n.whole }}
}

// simple returns a rule that uses the highest peak of some runs, plus a margin. The argument last is the number of most
// recent runs that it uses, or 0 for all runs. The rule ignores runs that failed or were cancelled for reasons other
// than memory.
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

// highest returns the rules that use the highest peak of some runs.
func highest() []rule {
	return []rule{
		simple("the peak of the last run", 1, 0),
		simple("the peak of the last run, plus 10%", 1, 0.1),
		simple("the highest peak of the last 3 runs", 3, 0),
		simple("the highest peak of the last 6 runs", 6, 0),
		simple("the highest peak of all runs", 0, 0),
		simple("the highest peak of all runs, plus 10%", 0, 0.1),
	}
}

func caelum() rule { return learned("Caelum", predict.DefaultSite) }
func known() rule  { return informed("Caelum, with known causes", predict.DefaultSite) }

// learned returns Caelum's rule. A job without a complete run is given the whole GPU.
func learned(name string, site predict.Site) rule {
	return rule{name, false, func(n node, runs []predict.Run) string { return n.predicted(runs, site, n.whole) }}
}

// predicted returns the profile that Caelum predicts for a job's next run. For a job without a complete run, the result
// is at least as large as the profile given by unknown.
func (n node) predicted(runs []predict.Run, site predict.Site, unknown string) string {
	need, ok := predict.Predict(predict.History{Level: predict.ByKey, Runs: runs}, site)
	if !ok {
		return need.AtLeast(n.model, n.all, unknown)
	}
	if p, ok := need.On(n.model, n.all); ok {
		return p
	}
	return n.whole
}

// informed returns a variant of Caelum's rule that knows which failed runs ran out of memory.
func informed(name string, site predict.Site) rule {
	r := learned(name, site)
	find := r.choose
	r.kills = true
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
