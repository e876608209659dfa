package place

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The commands for plans in testdata/notebook.

// show prints the steps of a plan, one per line, and carries the plan out.
func show(t *testing.T, out *strings.Builder, gpus []GPU, plan Plan) []GPU {
	if len(plan) == 0 {
		fmt.Fprintln(out, plan)
	}
	for _, s := range plan {
		fmt.Fprintln(out, s)
	}
	return carryOut(t, gpus, plan)
}

func servePlans(t *testing.T, out *strings.Builder, gpus []GPU, name string, profiles []string) []GPU {
	policy, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for n, profile := range profiles {
		pool := NewPool(gpus)
		c := policy.Choose(&Situation{Pool: pool}, Request{profile, 3600})
		if c.Verdict != Here {
			fmt.Fprintf(out, "%s: nowhere\n", profile)
			continue
		}
		gpus = show(t, out, gpus, pool.Serve(Spot{c.GPU, c.Placement}, n))
	}
	return gpus
}

func packed(gpus []GPU, profiles []string) string {
	at, ok := Pack(gpus, profiles)
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
	draw(&out, after)
	return out.String()
}

// readSpots reads GPU PROFILE@START, as often as it occurs, and returns the spots and the remaining fields.
func readSpots(t *testing.T, gpus []GPU, fields []string) (spots []Spot, rest []string) {
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
		spots, fields = append(spots, Spot{k, i}), fields[2:]
	}
	return spots, fields
}

func readJobs(t *testing.T, gpus []GPU, lines []string) []Running {
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
	gpus []GPU,
	jobs []Running,
	args []datadriven.CmdArg,
	lines []string,
) []GPU {
	now := number(t, args[0].Key)
	c := Reconfigure{Fixed: number(t, args[1].Key), Beta: number(t, args[2].Key)}
	for _, line := range lines {
		profile, d, _ := strings.Cut(line, " ")
		s := &Situation{Pool: NewPool(gpus), Now: now}
		plan, until := c.Plan(s, Request{profile, number(t, d)}, len(jobs), jobs)
		if len(plan) == 0 {
			fmt.Fprintf(out, "%s: wait until %g\n", profile, until)
			continue
		}
		fmt.Fprintf(out, "%s, instead of waiting until %g:\n", profile, until)
		gpus = show(t, out, gpus, plan)
	}
	return gpus
}

func rearrange(t *testing.T, out *strings.Builder, gpus []GPU, d *datadriven.TestData, lines []string) []GPU {
	var stay []Spot
	for _, line := range lines {
		spots, _ := readSpots(t, gpus, strings.Fields(line))
		stay = append(stay, spots...)
	}
	pool, movable := NewPool(gpus), allBut(gpus, stay...)
	var plan Plan
	switch d.Cmd {
	case "depart":
		plan = pool.Depart(int(number(t, d.CmdArgs[0].Key)), 0.4, movable)
	case "reject":
		plan = pool.Reject(movable)
	case "merge":
		plan = pool.Merge(movable)
	}
	return show(t, out, gpus, plan)
}
