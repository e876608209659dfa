package placetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// ReadGPUs reads the GPUs of a datadriven command MODEL [all]: one GPU per line, numbered from 0. A line shows a
// drawing of the busy instances (# for blocked units), then a drawing of the idle instances, if any. The GPUs have the
// plain profiles or, if the argument all is given, every profile.
func ReadGPUs(t *testing.T, d *datadriven.TestData) []place.GPU {
	b, err := mig.ModelByName(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	if !d.HasArg("all") {
		b = b.Select(mig.Plain)
	}
	var gpus []place.GPU
	for line := range strings.SplitSeq(d.Input, "\n") {
		g := place.GPU{Model: b}
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

// Draw writes the busy and the idle instances of GPUs.
func Draw(out *strings.Builder, gpus []place.GPU) {
	for k, g := range gpus {
		fmt.Fprintf(out, "%d      %s\n", k, g.Model.DrawBeside(g.Busy, g.Blocked))
		if g.Idle != 0 {
			fmt.Fprintf(out, "  idle %s\n", g.Model.Draw(g.Idle))
		}
	}
}
