package offer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// TestNotebook runs the files testdata/node/*.txt, with these commands:
//
//	node board=MODEL   sets the GPUs, one drawing per line; an idle instance follows as idle=3g.20gb@4
//	plan               prints the offers and the jobs with spots; one job per line: id profile count [profile count ...]
//	pack               prints the spots of the slices of each job; one job per line
func TestNotebook(t *testing.T) {
	datadriven.Walk(t, "testdata/node", func(t *testing.T, path string) {
		var gpus []place.GPU
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "node":
				var err error
				if gpus, err = readNode(t, d); err != nil {
					return err.Error()
				}
				return ""
			case "plan":
				return drawPlan(gpus, demands(d.Input))
			case "pack":
				return drawPack(gpus, demands(d.Input))
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func readNode(t *testing.T, d *datadriven.TestData) (gpus []place.GPU, err error) {
	var model string
	d.ScanArgs(t, "board", &model)
	b := plain(t, model)
	for line := range strings.Lines(d.Input) {
		drawing, idle, _ := strings.Cut(strings.TrimSpace(line), " idle=")
		busy, blocked, err := b.ParseBeside(drawing)
		if err != nil {
			return nil, err
		}
		g := place.GPU{Model: b, Busy: busy, Blocked: blocked, Offerable: everything(b)}
		for _, label := range strings.Fields(idle) {
			profile, start, _ := strings.Cut(label, "@")
			n, _ := strconv.Atoi(start)
			p, ok := b.Placement(profile, n)
			if !ok {
				return nil, fmt.Errorf("no %s", label)
			}
			g.Idle = g.Idle.With(p)
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

func drawPlan(gpus []place.GPU, jobs []*Job) string {
	plan := Make(NewCluster(place.Reach, gpus), jobs, false)
	if err := plan.Check(gpus); err != nil {
		return "UNSOUND: " + err.Error()
	}
	var out strings.Builder
	for i, g := range gpus {
		fmt.Fprintf(&out, "GPU %d: %s\n", i, g.Model.List(plan.Offers[i]))
	}
	fmt.Fprintf(&out, "served: %v\n", served(jobs, plan))
	return out.String()
}

func drawPack(gpus []place.GPU, jobs []*Job) string {
	spots, ok := Pack(gpus, jobs)
	if !ok {
		return "no room for all"
	}
	var out strings.Builder
	for _, j := range jobs {
		fmt.Fprintf(&out, "%d:", j.ID)
		for _, s := range spots[j.ID] {
			fmt.Fprintf(&out, " GPU %d %s", s.GPU, gpus[s.GPU].Model.Label(s.Placement))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func demands(text string) []*Job {
	var all []*Job
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		id, _ := strconv.Atoi(f[0])
		d := &Job{ID: uint32(id), RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
		for k := 1; k+1 < len(f); k += 2 {
			n, _ := strconv.Atoi(f[k+1])
			d.Wants = append(d.Wants, Want{Profile: f[k], Count: n})
		}
		all = append(all, d)
	}
	return all
}

func served(jobs []*Job, plan Plan) []uint32 {
	all := []uint32{}
	for k, spots := range plan.Spots {
		if spots != nil {
			all = append(all, jobs[k].ID)
		}
	}
	return all
}

func plain(t testing.TB, name string) *mig.Model {
	t.Helper()
	b, err := mig.ModelByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return b.Select(mig.Plain)
}

func everything(b *mig.Model) mig.Layout {
	var l mig.Layout
	for p := range b.Profiles {
		l |= b.OfProfile(p)
	}
	return l
}
