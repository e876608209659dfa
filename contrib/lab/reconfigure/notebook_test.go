package reconfigure

import (
	"fmt"
	"math"
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
//	plan POLICY            shows, for each profile (one per line), the plan for the spot that the policy chooses, and
//	                       then the GPUs
//	jobs                   sets the instances of each job, one job per line, numbered from 0:
//	                       GPU PROFILE@START [GPU PROFILE@START ...] START+DURATION [DEADLINE|keep]. With keep, the job
//	                       may not be stopped
//	reconfigure NOW FIXED BETA [move]
//	                       shows, for each line PROFILE DURATION, a plan or the end of the wait, and then the GPUs
//	depart GPU             shows the plan after a job has left the GPU, then the GPUs. Each line GPU PROFILE@START is
//	                       an instance that must not be moved
//	reject, merge          have the same arguments and output as depart, but without a GPU
//
// Rewrite the files with: go test ./reconfigure -run Notebook -rewrite
func TestNotebook(t *testing.T) {
	datadriven.Walk(t, "testdata/notebook", func(t *testing.T, path string) {
		var gpus []place.GPU
		var jobs []Running
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			lines := strings.Split(d.Input, "\n")
			switch d.Cmd {
			case "gpus":
				gpus, jobs = placetest.ReadGPUs(t, d), nil
			case "plan":
				gpus = servePlans(t, &out, gpus, d.CmdArgs[0].Key, lines)
			case "jobs":
				jobs = readJobs(t, gpus, lines)
			case "reconfigure":
				gpus = reconfigure(t, &out, gpus, jobs, d.CmdArgs, lines)
			case "depart", "reject", "merge":
				gpus = rearrange(t, &out, gpus, d)
			default:
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			placetest.Draw(&out, gpus)
			return out.String()
		})
	})
}

// show prints the steps of a plan, one per line, and applies the plan.
func show(t *testing.T, out *strings.Builder, gpus []place.GPU, plan Plan) []place.GPU {
	if len(plan) == 0 {
		fmt.Fprintln(out, plan)
	}
	for _, s := range plan {
		fmt.Fprintln(out, s)
	}
	return carryOut(t, gpus, plan)
}

func servePlans(t *testing.T, out *strings.Builder, gpus []place.GPU, name string, profiles []string) []place.GPU {
	policy, err := place.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for n, profile := range profiles {
		pool := place.NewPool(gpus)
		c := policy.Choose(&place.Situation{Pool: pool}, place.Request{Profile: profile, Duration: 3600})
		if c.Verdict != place.Here {
			fmt.Fprintf(out, "%s: nowhere\n", profile)
			continue
		}
		gpus = show(t, out, gpus, Serve(pool, spot(c.GPU, c.Placement), n))
	}
	return gpus
}

// readSpots parses pairs of fields GPU PROFILE@START, and returns the spots and the remaining fields.
func readSpots(t *testing.T, gpus []place.GPU, fields []string) (spots []place.Spot, rest []string) {
	for len(fields) >= 2 && strings.Contains(fields[1], "@") {
		k, err := strconv.Atoi(fields[0])
		profile, at, _ := strings.Cut(fields[1], "@")
		start, err2 := strconv.Atoi(at)
		if err != nil || err2 != nil || k >= len(gpus) {
			t.Fatalf("%q: want GPU PROFILE@START", fields)
		}
		i, ok := gpus[k].Model.Placement(profile, start)
		if !ok || !gpus[k].Busy.Has(i) {
			t.Fatalf("%q: no such busy instance", fields)
		}
		spots, fields = append(spots, spot(k, i)), fields[2:]
	}
	return spots, fields
}

func readJobs(t *testing.T, gpus []place.GPU, lines []string) []Running {
	var jobs []Running
	for _, line := range lines {
		run := Running{Deadline: math.Inf(1), Requeue: true}
		var rest []string
		run.Holds, rest = readSpots(t, gpus, strings.Fields(line))
		if _, err := fmt.Sscanf(rest[0], "%f+%f", &run.Start, &run.Duration); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch {
		case len(rest) == 1:
		case rest[1] == "keep":
			run.Requeue = false
		default:
			run.Deadline = number(t, rest[1])
		}
		for _, h := range run.Holds {
			gpus[h.GPU].Expect(h.Placement, run.Start+run.Duration)
		}
		jobs = append(jobs, run)
	}
	return jobs
}

func number(t *testing.T, s string) float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func reconfigure(
	t *testing.T,
	out *strings.Builder,
	gpus []place.GPU,
	jobs []Running,
	args []datadriven.CmdArg,
	lines []string,
) []place.GPU {
	now := number(t, args[0].Key)
	c := LastResort{Fixed: number(t, args[1].Key), Beta: number(t, args[2].Key)}
	c.Move = len(args) > 3 && args[3].Key == "move"
	for _, line := range lines {
		profile, d, _ := strings.Cut(line, " ")
		s := &place.Situation{Pool: place.NewPool(gpus), Now: now}
		plan, until := c.Plan(s, place.Request{Profile: profile, Duration: number(t, d)}, len(jobs), jobs)
		if len(plan) == 0 {
			fmt.Fprintf(out, "%s: wait until %g\n", profile, until)
			continue
		}
		fmt.Fprintf(out, "%s, instead of waiting until %g:\n", profile, until)
		gpus = show(t, out, gpus, plan)
	}
	return gpus
}

func rearrange(t *testing.T, out *strings.Builder, gpus []place.GPU, d *datadriven.TestData) []place.GPU {
	var stay []place.Spot
	for line := range strings.SplitSeq(d.Input, "\n") {
		spots, _ := readSpots(t, gpus, strings.Fields(line))
		stay = append(stay, spots...)
	}
	pool, movable := place.NewPool(gpus), allBut(gpus, stay...)
	var plan Plan
	switch d.Cmd {
	case "depart":
		plan = AfterDeparture(pool, int(number(t, d.CmdArgs[0].Key)), 0.4, movable)
	case "reject":
		plan = AfterRejection(pool, movable)
	case "merge":
		plan = Consolidate(pool, movable)
	}
	return show(t, out, gpus, plan)
}
