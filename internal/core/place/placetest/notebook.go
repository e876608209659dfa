package placetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// ReadGPUs parses the input of a datadriven command with the arguments MODEL [all|full]: one GPU per line, numbered
// from 0. Each line is a drawing of the busy instances (# for blocked units), optionally followed by a drawing of the
// idle instances. With `all`, the GPUs have every profile. Otherwise, they have only the plain profiles and, with
// `full`, mig.Full.
func ReadGPUs(t *testing.T, d *datadriven.TestData) []place.GPU {
	b, err := mig.ModelByName(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	if !d.HasArg("all") {
		b = b.Select(mig.Plain)
	}
	if d.HasArg("full") {
		b = b.WithFull(0)
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

// Draw writes drawings of the GPUs' busy and idle instances to out.
func Draw(out *strings.Builder, gpus []place.GPU) {
	for k, g := range gpus {
		fmt.Fprintf(out, "%d      %s\n", k, g.Model.DrawBeside(g.Busy, g.Blocked))
		if g.Idle != 0 {
			fmt.Fprintf(out, "  idle %s\n", g.Model.Draw(g.Idle))
		}
	}
}
