package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/node/api"
)

func (t trial) print(w io.Writer) {
	fmt.Fprintf(w, "policy %s; the GPUs before placement:\n", t.policy)
	printGPUs(w, t.before)
	fmt.Fprintln(w)
	for _, s := range t.steps {
		if !s.placed {
			fmt.Fprintf(w, "%s: %s\n", s.profile, s.why(t.policy))
			continue
		}
		fmt.Fprintf(w, "%s: at position %d on GPU %d, %s\n", s.profile, s.start(), s.gpu, s.how())
		printGPU(w, s.gpu, s.left)
	}
	if len(t.before) > 1 {
		fmt.Fprintln(w, "\nafterwards:")
		printGPUs(w, t.after)
	}
}

// why returns the reason why the policy did not place the slice.
func (s step) why(policy string) string {
	if s.room {
		return "no placement that " + policy + " uses is free"
	}
	return "no room"
}

// how describes how the slice is acquired: reuse, carve or reclaim. For reclaim, it also lists the instances that are
// destroyed.
func (s step) how() string {
	if s.acquisition == place.Reclaim {
		return "reclaim " + s.left.Model.List(s.gone)
	}
	return s.acquisition.String()
}

// start returns the first unit of the placement.
func (s step) start() int { return s.left.Model.Placements[s.index].Start }

// printGPUs draws each GPU. It prints the model's name before the first GPU and wherever the model changes.
func printGPUs(w io.Writer, gpus []place.GPU) {
	var model *mig.Model
	for k, g := range gpus {
		if g.Model != model {
			model = g.Model
			fmt.Fprintf(w, "%s\n     %s  %s\n", model.Name, ruler(model), measuresHead)
		}
		printGPU(w, k, g)
	}
}

func printGPU(w io.Writer, k int, g place.GPU) {
	fmt.Fprintf(w, "%4d %s  %s\n", k, g.Model.DrawBeside(g.Busy, g.Blocked), measures(layoutOf(g)))
	if g.Idle != 0 {
		fmt.Fprintf(w, "idle %s\n", g.Model.Draw(g.Idle))
	}
}

// compare places the requests with each policy and prints one line per policy. It returns an error if no policy places
// all of the requests.
func compare(w io.Writer, g *globals, gpus []place.GPU, requests []place.Request) error {
	var trials []trial
	failed := 0
	for _, name := range place.Names() {
		policy, err := place.ByName(name)
		if err != nil {
			return err
		}
		t := placeAll(policy, name, gpus, requests)
		if t.noRoom() != nil {
			failed++
		}
		trials = append(trials, t)
	}
	if g.json {
		var all []trialEntry
		for _, t := range trials {
			all = append(all, t.json())
		}
		if err := printJSON(w, map[string]any{"policies": all}); err != nil {
			return err
		}
	} else {
		printTrials(w, trials)
	}
	if failed == len(trials) {
		return errors.New("no policy has room for all requests")
	}
	return nil
}

func printTrials(w io.Writer, trials []trial) {
	fmt.Fprintln(w, "the GPUs before placement:")
	printGPUs(w, trials[0].before)
	fmt.Fprintln(w, "\nGPU@start of each request (-: no room), and all GPUs afterwards:")
	head, right := []string{"POLICY"}, []bool{false}
	for _, s := range trials[0].steps {
		head, right = append(head, s.profile), append(right, false)
	}
	right = append(right, true, true, true)
	table := [][]string{append(head, strings.Fields(measuresHead)...)}
	for _, t := range trials {
		row := []string{t.policy}
		for _, s := range t.steps {
			at := "-"
			if s.placed {
				at = fmt.Sprintf("%d@%d", s.gpu, s.start())
			}
			row = append(row, at)
		}
		table = append(table, append(row, left(t.after)...))
	}
	rows(w, right, table)
}

// left returns REACH, CC and FRAG for all GPUs together. REACH is the product of the GPUs' values, because each maximal
// layout of one GPU can be combined with any maximal layouts of the others.
func left(gpus []place.GPU) []string {
	reach, cc, frag := 1.0, 0, 0.0
	for _, g := range gpus {
		n := layoutOf(g)
		reach *= float64(n.Reach)
		cc += n.CC
		frag += n.Frag / float64(len(gpus))
	}
	format := "%.0f"
	if reach >= 1e6 {
		format = "%.1e"
	}
	return []string{fmt.Sprintf(format, reach), strconv.Itoa(cc), fmt.Sprintf("%.2f", frag)}
}

// trialEntry is the JSON form of a trial.
type trialEntry struct {
	Policy string      `json:"policy"`
	Before []gpuEntry  `json:"before"`
	Steps  []stepEntry `json:"requests"`
	After  []gpuEntry  `json:"after"`
}

// stepEntry is the JSON form of a step.
type stepEntry struct {
	Profile     string          `json:"profile"`
	Placed      bool            `json:"placed"`
	GPU         *int            `json:"gpu,omitempty"`
	Start       *int            `json:"start,omitempty"`
	Acquisition string          `json:"means,omitempty"`
	Reclaimed   []api.Placement `json:"reclaimed,omitempty"`
	Left        *gpuEntry       `json:"left,omitempty"` // the GPU after the placement
	Why         string          `json:"why,omitempty"`  // why the request was not placed
}

// gpuEntry is the JSON form of a place.GPU.
type gpuEntry struct {
	Model string `json:"board"`
	drawn
	Idle string `json:"idle,omitempty"`
}

func (t trial) json() trialEntry {
	e := trialEntry{Policy: t.policy, Before: gpuEntries(t.before), After: gpuEntries(t.after)}
	for _, s := range t.steps {
		if !s.placed {
			e.Steps = append(e.Steps, stepEntry{Profile: s.profile, Why: s.why(t.policy)})
			continue
		}
		start, left := s.start(), entryOf(s.left)
		e.Steps = append(e.Steps, stepEntry{Profile: s.profile, Placed: true, GPU: &s.gpu, Start: &start,
			Acquisition: s.acquisition.String(), Reclaimed: placements(s.left.Model, s.gone), Left: &left})
	}
	return e
}

func gpuEntries(gpus []place.GPU) []gpuEntry {
	var all []gpuEntry
	for _, g := range gpus {
		all = append(all, entryOf(g))
	}
	return all
}

func entryOf(g place.GPU) gpuEntry {
	e := gpuEntry{Model: g.Model.Name, drawn: drawLayout(layoutOf(g))}
	if g.Idle != 0 {
		e.Idle = g.Model.Draw(g.Idle)
	}
	return e
}
