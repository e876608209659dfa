package slurm_test

import (
	"fmt"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/eligible"
	"caelum/internal/slurm"
)

// This function adds the "waiting" command to TestStory, which prints what package eligible decides about recorded
// jobs. It cannot be in package slurm itself, which eligible imports.
func init() {
	slurm.RecordingParsers["waiting"] = func(out string, _ *datadriven.TestData) (text string, err error) {
		waiting, err := slurm.ParseWaiting(out)
		for _, w := range waiting {
			text += fmt.Sprintf("%d %q x%d eligible=%v held-by-tag=%v %s\n",
				w.ID, w.Name, w.Elements, eligible.WaitsForNodes(w), eligible.HeldByTag(w), w.Reason)
		}
		return text, err
	}
}
