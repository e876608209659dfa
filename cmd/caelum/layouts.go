package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/core/mig"
)

type layoutsOptions struct {
	profiles   []string
	containing string
	all        bool
	measures   bool
}

func newLayouts(g *globals) *cobra.Command {
	var o layoutsOptions
	cmd := &cobra.Command{
		Use:   "layouts BOARD",
		Short: "Count and draw the layouts of a GPU model",
		Long: `layouts counts the layouts that a GPU can have, and draws the maximal ones, to which no instance can
be added. In a drawing, each cell is a unit, and a dot marks a free unit. Layouts with the largest
instances come first.

` + measuresHelp + `
A maximal layout has a REACH of 1 and a CC of 0.

` + tablesHelp,
		Example: `  caelum layouts A100-40GB
  caelum layouts A100-40GB --containing '|.|.|.|.|.|.|1g.5gb|.|'
  caelum layouts A100-40GB --all-layouts --measures --profiles 1g.5gb,3g.20gb,7g.40gb`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("specify one GPU model; `caelum profiles` lists the GPU models")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runLayouts(cmd.OutOrStdout(), g, o, args[0]) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.profiles, "profiles", nil, profilesHelp)
	f.StringVar(&o.containing, "containing", "",
		"count and draw only layouts that contain the layout in this drawing: |name|.|#|... (# is a blocked unit)")
	f.BoolVar(&o.all, "all-layouts", false, "draw all layouts, not only the maximal ones")
	f.BoolVar(&o.measures, "measures", false, "print REACH, CC and FRAG for each layout")
	return cmd
}

func runLayouts(w io.Writer, g *globals, o layoutsOptions, name string) error {
	whole, err := modelNamed(name)
	if err == nil {
		err = checkProfiles(o.profiles, whole)
	}
	if err != nil {
		return err
	}
	b := selected(whole, o.profiles)
	var contained mig.Layout
	var blocked uint64
	if o.containing != "" {
		if contained, blocked, err = readDrawing("--containing", b, o.containing); err != nil {
			return err
		}
	}
	f := enumerate(b.TableBeside(blocked), contained)
	if g.json {
		return printJSON(w, f.json(o))
	}
	f.print(w, o)
	return nil
}

// found holds the layouts of a GPU model that include a given layout.
type found struct {
	from    *mig.LayoutInfo
	layouts []*mig.LayoutInfo // the layouts that include from, sorted by largestFirst
	maximal []*mig.LayoutInfo // the maximal layouts among layouts, in the same order
}

// enumerate returns the layouts in t that include the given layout.
func enumerate(t *mig.Table, contained mig.Layout) found {
	f := found{from: t.Info(contained)}
	for k := range t.Infos() {
		if n := &t.Infos()[k]; n.Layout&contained == contained {
			f.layouts = append(f.layouts, n)
		}
	}
	largestFirst(t.Model, f.layouts)
	for _, n := range f.layouts {
		if n.Open == 0 {
			f.maximal = append(f.maximal, n)
		}
	}
	return f
}

func (f found) shown(o layoutsOptions) []*mig.LayoutInfo {
	if o.all {
		return f.layouts
	}
	return f.maximal
}

func (f found) print(w io.Writer, o layoutsOptions) {
	b := f.from.Table().Model
	fmt.Fprintf(w, "%s with the profiles %s\n", b.Name, strings.Join(profileNames(b), " "))
	if o.containing == "" {
		fmt.Fprintf(w, "%s, %d of them maximal\n\n", plural(len(f.layouts), "layout"), len(f.maximal))
	} else {
		fmt.Fprintf(w, "%s\n%d of %d layouts contain this layout; %d of %d maximal layouts do\n\n",
			drawLayout(f.from).Drawing, len(f.layouts), len(f.from.Table().Infos()), len(f.maximal),
			f.from.Table().Info(0).Reach)
	}
	head := ruler(b)
	if o.measures {
		head += "  " + measuresHead
	}
	fmt.Fprintln(w, strings.TrimRight(head, " "))
	for _, n := range f.shown(o) {
		fmt.Fprint(w, b.DrawBeside(n.Layout, n.Table().Blocked))
		if o.measures {
			fmt.Fprint(w, "  ", measures(n))
		}
		fmt.Fprintln(w)
	}
}

func (f found) json(o layoutsOptions) any {
	b := f.from.Table().Model
	out := struct {
		Model      string   `json:"board"`
		Profiles   []string `json:"profiles"`
		Containing *drawn   `json:"containing,omitempty"`
		Layouts    int      `json:"layouts"`
		Maximal    int      `json:"maximal"`
		Drawn      []drawn  `json:"drawn"`
	}{Model: b.Name, Profiles: profileNames(b), Layouts: len(f.layouts), Maximal: len(f.maximal)}
	if o.containing != "" {
		from := drawLayout(f.from)
		out.Containing = &from
	}
	for _, n := range f.shown(o) {
		out.Drawn = append(out.Drawn, drawLayout(n))
	}
	return out
}

// largestFirst sorts layouts by the instance that starts at unit 0, then by the instance that starts at unit 1, and so
// on. Larger instances come first, and units at which no instance starts come last.
func largestFirst(b *mig.Model, infos []*mig.LayoutInfo) {
	order := make([]int, len(b.Profiles))
	for p := range order {
		order[p] = p
	}
	slices.SortStableFunc(order, func(p, q int) int {
		x, y := b.Profiles[p], b.Profiles[q]
		return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(y.Compute, x.Compute))
	})
	rank := make([]int, len(order))
	for r, p := range order {
		rank[p] = r
	}
	key := func(n *mig.LayoutInfo) []int {
		at := slices.Repeat([]int{len(rank)}, b.Grid)
		for i := range n.Layout.Indices() {
			pl := b.Placements[i]
			at[pl.Start] = rank[pl.Profile]
		}
		return at
	}
	slices.SortFunc(infos, func(m, n *mig.LayoutInfo) int { return slices.Compare(key(m), key(n)) })
}
