package place_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// TestNotebook runs the files in testdata/notebook, with these commands:
//
//	gpus MODEL [all]       sets the GPUs for the following commands: see [placetest.ReadGPUs]
//	choose POLICY [asked=(PROFILE:N,...)]
//	                       places the profiles, one per line, one after another, and shows the GPUs. asked is the number
//	                       of recent requests for each profile
//	end                    ends jobs, one per line (GPU PROFILE@START), so that their instances become idle. Shows the
//	                       GPUs
//	pack                   places all profiles, one per line, or none, and shows the GPUs as they would be afterwards
//
// Rewrite the files with: go test ./internal/core/place -run Notebook -rewrite
func TestNotebook(t *testing.T) {
	datadriven.Walk(t, "testdata/notebook", func(t *testing.T, path string) {
		var gpus []place.GPU
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			lines := strings.Split(d.Input, "\n")
			switch d.Cmd {
			case "gpus":
				gpus = placetest.ReadGPUs(t, d)
			case "choose":
				policy, err := place.ByName(d.CmdArgs[0].String())
				if err != nil {
					return err.Error()
				}
				weights := readAsked(t, d)
				for _, profile := range lines {
					fmt.Fprintln(&out, choose(t, gpus, policy, profile, weights))
				}
			case "end":
				for _, line := range lines {
					end(t, gpus, line)
				}
			case "pack":
				return packed(gpus, lines)
			default:
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			placetest.Draw(&out, gpus)
			return out.String()
		})
	})
}

func readAsked(t *testing.T, d *datadriven.TestData) *place.Weights {
	arg, ok := d.Arg("asked")
	if !ok {
		return nil
	}
	weights := map[string]float64{}
	for _, v := range arg.Vals {
		name, count, _ := strings.Cut(v, ":")
		n, err := strconv.ParseFloat(count, 64)
		if err != nil {
			d.Fatalf(t, "asked=%s: %v", v, err)
		}
		weights[name] = n
	}
	return place.NewWeights(weights)
}

func choose(t *testing.T, gpus []place.GPU, policy place.Policy, profile string, weights *place.Weights) string {
	s := &place.Situation{Pool: place.NewPool(gpus), Weights: weights}
	c := policy.Choose(s, place.Request{Profile: profile, Duration: 3600})
	if c.Verdict == place.Nowhere {
		return profile + ": nowhere"
	}
	k, i := c.GPU, c.Placement
	g := &gpus[k]
	how, ok := g.AcquisitionOf(i)
	if !ok {
		t.Fatalf("%s on GPU %d is not possible", g.Model.Label(i), k)
	}
	text := fmt.Sprintf("%s on GPU %d: %s", g.Model.Label(i), k, how)
	if gone := g.InTheWay(i); gone != 0 {
		text += " " + g.Model.List(gone)
		g.Idle &^= gone
	}
	g.Idle = g.Idle.Without(i)
	g.Busy = g.Busy.With(i)
	return text
}

func end(t *testing.T, gpus []place.GPU, line string) {
	var k, start int
	var profile string
	if _, err := fmt.Sscanf(strings.Replace(line, "@", " ", 1), "%d %s %d", &k, &profile, &start); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	i, ok := gpus[k].Model.Placement(profile, start)
	if !ok || !gpus[k].Busy.Has(i) {
		t.Fatalf("%q: no such instance", line)
	}
	gpus[k].Busy, gpus[k].Idle = gpus[k].Busy.Without(i), gpus[k].Idle.With(i)
}

func packed(gpus []place.GPU, profiles []string) string {
	at, ok := place.Pack(gpus, profiles)
	if !ok {
		return "no room for all\n"
	}
	var out strings.Builder
	after := slices.Clone(gpus)
	for _, s := range at {
		g := &after[s.GPU]
		what := ""
		if g.Idle.Has(s.Placement) {
			what = " (idle)"
		}
		fmt.Fprintf(&out, "%s on GPU %d%s\n", g.Model.Label(s.Placement), s.GPU, what)
		g.Idle &^= g.InTheWay(s.Placement)
		g.Idle = g.Idle.Without(s.Placement)
		g.Busy = g.Busy.With(s.Placement)
	}
	placetest.Draw(&out, after)
	return out.String()
}
