package mig

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestNotebook runs the files in testdata/notebook. Each command applies to the GPU model selected by the last board
// command:
//
//	board NAME [all] [without=PROFILE]   prints the plain profiles, or all profiles, and the number of layouts
//	draw      draws each line of placements (3g.20gb@0 1g.5gb@4)
//	open      prints the starts that are still open in each drawing, by profile
//	reach     prints the reach of each drawing
//	cc        prints the CC of each drawing
//
// Rewrite the files with: go test ./internal/core/mig -run Notebook -rewrite
func TestNotebook(t *testing.T) {
	datadriven.Walk(t, "testdata/notebook", func(t *testing.T, path string) {
		var b *Model
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "board" {
				b = notebookModel(t, d)
				return describe(b)
			}
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				fmt.Fprintln(&out, answer(t, b, d.Cmd, line))
			}
			return out.String()
		})
	})
}

func notebookModel(t *testing.T, d *datadriven.TestData) *Model {
	all, leaveOut := d.HasArg("all"), ""
	d.MaybeScanArgs(t, "without", &leaveOut)
	from, err := ModelByName(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return from.Select(func(p Profile) bool { return (all || Plain(p)) && p.Name != leaveOut })
}

func describe(b *Model) string {
	var s strings.Builder
	for p, pr := range b.Profiles {
		fmt.Fprintf(&s, "%-15s compute %d  size %2d  at most %d  starts %s\n",
			pr.Name, pr.Compute, pr.Size, pr.Max, starts(b, b.OfProfile(p)))
	}
	fmt.Fprintf(&s, "%d units, %d placements, %d layouts, %d of them maximal\n",
		b.Grid, len(b.Placements), len(b.Layouts()), len(b.Maximal()))
	return s.String()
}

func answer(t *testing.T, b *Model, cmd, line string) string {
	if cmd == "draw" {
		l, err := placements(b, line)
		if err != nil {
			return err.Error()
		}
		return b.Draw(l)
	}
	l, blocked, err := b.ParseBeside(line)
	if err != nil {
		return err.Error()
	}
	drawn := b.DrawBeside(l, blocked)
	switch cmd {
	case "open":
		for p, pr := range b.Profiles {
			if open := b.Open(l, blocked) & b.OfProfile(p); open != 0 {
				drawn += "\n  " + pr.Name + " " + starts(b, open)
			}
		}
		return drawn
	case "reach":
		return fmt.Sprintf("%3d %s", b.ReachBeside(l, blocked), drawn)
	case "cc":
		return fmt.Sprintf("%3d %s", b.Open(l, blocked).Count(), drawn)
	}
	t.Fatalf("no command %q", cmd)
	return ""
}

// placements parses the output of List.
func placements(b *Model, line string) (Layout, error) {
	var l Layout
	if line == "-" {
		return 0, nil
	}
	for _, f := range strings.Fields(line) {
		name, at, _ := strings.Cut(f, "@")
		start, err := strconv.Atoi(at)
		if err != nil {
			return 0, err
		}
		i, ok := b.Placement(name, start)
		if !ok {
			return 0, fmt.Errorf("no placement %s", f)
		}
		if !b.Fits(l, i) {
			return 0, fmt.Errorf("%s does not fit %s", f, b.Draw(l))
		}
		l = l.With(i)
	}
	return l, nil
}

func starts(b *Model, l Layout) string {
	var s []string
	for i := range l.Indices() {
		s = append(s, strconv.Itoa(b.Placements[i].Start))
	}
	return strings.Join(s, " ")
}
