package place_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// TestTime runs the files in testdata/time with the lifetime policy, which uses the expected ends. The commands are:
//
//	gpus MODEL       sets the GPUs, one per line, numbered from 0. A line is a drawing of the busy instances and
//	                 the end of each of them, in the order of the GPU model's profiles and then by start. "?" is unknown
//	choose POLICY [now=T] [mean=S]
//	                 chooses a placement for a job (PROFILE DURATION), but does not place the job
//
// Times are in seconds. Rewrite the files with: go test ./internal/core/place -run Time -rewrite
func TestTime(t *testing.T) {
	datadriven.Walk(t, "testdata/time", func(t *testing.T, path string) {
		var gpus []place.GPU
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			lines := strings.Split(d.Input, "\n")
			switch d.Cmd {
			case "gpus":
				gpus = nil
				for _, line := range lines {
					gpus = append(gpus, readEnds(t, d, line))
				}
				var out strings.Builder
				placetest.Draw(&out, gpus)
				return out.String()
			case "choose":
				policy, err := place.ByName(d.CmdArgs[0].Key)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				s := &place.Situation{Pool: place.NewPool(gpus)}
				d.MaybeScanArgs(t, "now", &s.Now)
				d.MaybeScanArgs(t, "mean", &s.MeanDuration)
				head := readRequest(t, d)
				return describe(gpus, policy.Choose(s, head)) + "\n"
			}
			d.Fatalf(t, "no command %q", d.Cmd)
			return ""
		})
	})
}

func describe(gpus []place.GPU, c place.Choice) string {
	if c.Verdict == place.Nowhere {
		return "nowhere"
	}
	return fmt.Sprintf("%s on GPU %d", gpus[c.GPU].Model.Label(c.Placement), c.GPU)
}

func readEnds(t *testing.T, d *datadriven.TestData, line string) place.GPU {
	b, err := mig.ModelByName(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	words := strings.Fields(line)
	g := place.GPU{Model: b.Select(mig.Plain)}
	if g.Busy, err = g.Model.Parse(words[0]); err != nil {
		d.Fatalf(t, "%s: %v", line, err)
	}
	if len(words) != 1+g.Busy.Count() {
		d.Fatalf(t, "%s: %d instances, %d ends", line, g.Busy.Count(), len(words)-1)
	}
	g.Ends = make([]float64, len(g.Model.Placements))
	k := 1
	for i := range g.Busy.Indices() {
		g.Ends[i] = math.Inf(1)
		if words[k] != "?" {
			fmt.Sscan(words[k], &g.Ends[i])
		}
		k++
	}
	return g
}

func readRequest(t *testing.T, d *datadriven.TestData) place.Request {
	words := strings.Fields(d.Input)
	r := place.Request{Profile: words[0], Duration: math.Inf(1)}
	if words[1] != "?" {
		if _, err := fmt.Sscan(words[1], &r.Duration); err != nil {
			d.Fatalf(t, "%s: %v", d.Input, err)
		}
	}
	return r
}
