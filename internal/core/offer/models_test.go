package offer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/place"
)

// holding is a policy that returns Hold for the listed profiles and places all others.
type holding []string

func (h holding) Choose(s *place.Situation, r place.Request) place.Choice {
	choice := place.Reach.Choose(s, r)
	if choice.Verdict == place.Here && slices.Contains(h, r.Profile) {
		choice.Verdict = place.Hold
	}
	return choice
}

// TestModels runs the files testdata/models/*.txt. Each file has one node per GPU model, and jobs whose profiles have
// equivalent profiles on other GPU models.
func TestModels(t *testing.T) {
	datadriven.Walk(t, "testdata/models", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var nodes [][]place.GPU
			var policy holding
			for _, arg := range d.CmdArgs {
				switch arg.Key {
				case "models":
					for _, name := range arg.Vals {
						b := plain(t, name)
						nodes = append(nodes, []place.GPU{{Model: b, Offerable: everything(b)}})
					}
				case "holds":
					policy = arg.Vals
				}
			}
			var jobs []*Job // one job per line: id, profile (or profile>larger profile), equivalent profiles
			for line := range strings.Lines(d.Input) {
				f := strings.Fields(line)
				requested, grown, _ := strings.Cut(f[1], ">")
				jobs = append(jobs, demands(f[0]+" "+requested+" 1")...)
				jobs[len(jobs)-1].Wants[0].Grown, jobs[len(jobs)-1].Wants[0].Alternatives = grown, f[2:]
			}
			c := NewCluster(policy, nodes...)
			plan := Make(c, jobs, false)
			var out strings.Builder
			for k, j := range jobs {
				fmt.Fprintf(&out, "%d:", j.ID)
				for _, at := range plan.Spots[k] {
					b := c.Pool.GPU(at.GPU).Model
					fmt.Fprintf(&out, " GPU %d %s", at.GPU, b.Label(at.Placement))
					if j.Wants[0].Grown != "" {
						fmt.Fprintf(&out, " as %s", plan.Name(b, at))
					}
				}
				out.WriteString("\n")
			}
			return out.String()
		})
	})
}
