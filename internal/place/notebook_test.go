package place

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"caelum/internal/mig"

	"github.com/cockroachdb/datadriven"
)

// TestNotebook runs testdata/notebook. Commands:
//
//	gpus MODEL [all]       one GPU per line, numbered from 0: the busy instances, drawn (# for blocked units), then
//	                       the idle instances, if any, drawn in the same way. The GPUs have the plain profiles, with
//	                       all every profile
//	choose POLICY [asked=(PROFILE:N,...)]
//	                       lines of profiles, placed one after the other; asked is how often each was requested
//	                       recently. Then the GPUs
//	end                    lines GPU PROFILE@START: a job ends, its instance remains, idle. Then the GPUs
//	plan POLICY            lines of profiles: for each the plan that serves it where the policy places it. Then the GPUs
//	pack                   lines of profiles: placed all together or not at all. Then the GPUs as they would be
//	jobs                   lines GPU PROFILE@START [GPU PROFILE@START ...] START+DURATION [DEADLINE|keep]: the
//	                       instances of each job, numbered from 0. keep: the job may not be stopped
//	reconfigure NOW FIXED BETA
//	                       lines PROFILE DURATION: a plan, or until when to wait. Then the GPUs
//	depart GPU             a job has left the GPU; lines GPU PROFILE@START: instances that must not move. The plan,
//	                       then the GPUs
//	reject, merge          likewise
//
// Rewrite with: go test ./internal/place -run Notebook -rewrite
func TestNotebook(t *testing.T) {
	datadriven.Walk(t, "testdata/notebook", func(t *testing.T, path string) {
		var gpus []GPU
		var jobs []Running
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			lines := strings.Split(d.Input, "\n")
			switch d.Cmd {
			case "gpus":
				gpus, jobs = readGPUs(t, d, lines), nil
			case "choose":
				policy, err := ByName(d.CmdArgs[0].String())
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
			case "plan":
				gpus = servePlans(t, &out, gpus, d.CmdArgs[0].Key, lines)
			case "pack":
				return packed(gpus, lines)
			case "jobs":
				jobs = readJobs(t, gpus, lines)
			case "reconfigure":
				gpus = reconfigure(t, &out, gpus, jobs, d.CmdArgs, lines)
			case "depart", "reject", "merge":
				gpus = rearrange(t, &out, gpus, d, lines)
			default:
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			draw(&out, gpus)
			return out.String()
		})
	})
}

func readGPUs(t *testing.T, d *datadriven.TestData, lines []string) []GPU {
	b, err := mig.ModelByName(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	if !d.HasArg("all") {
		b = b.Select(mig.Plain)
	}
	var gpus []GPU
	for _, line := range lines {
		g := GPU{Model: b}
		busy, idle, both := strings.Cut(line, " ")
		if g.Busy, g.Blocked, err = b.ParseBeside(busy); err == nil && both {
			g.Idle, err = b.Parse(idle)
		}
		if err == nil && !b.Legal(g.Busy|g.Idle) {
			err = fmt.Errorf("%s: busy and idle overlap", line)
		}
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		gpus = append(gpus, g)
	}
	return gpus
}

func readAsked(t *testing.T, d *datadriven.TestData) *Weights {
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
	return NewWeights(weights)
}

func choose(t *testing.T, gpus []GPU, policy Policy, profile string, weights *Weights) string {
	c := policy.Choose(&Situation{Pool: NewPool(gpus), Weights: weights}, Request{Profile: profile, Duration: 3600})
	if c.Verdict == Nowhere {
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

func end(t *testing.T, gpus []GPU, line string) {
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

func draw(out *strings.Builder, gpus []GPU) {
	for k, g := range gpus {
		fmt.Fprintf(out, "%d      %s\n", k, g.Model.DrawBeside(g.Busy, g.Blocked))
		if g.Idle != 0 {
			fmt.Fprintf(out, "  idle %s\n", g.Model.Draw(g.Idle))
		}
	}
}
