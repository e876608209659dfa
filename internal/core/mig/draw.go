package mig

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Draw returns a one-line drawing of the GPU's units, which all have the same width. An instance's cell shows the name
// of its profile, padded with =, and a free unit's cell shows dots.
//
//	|3g.20gb====================|1g.5gb|......|......|......|
func (b *Model) Draw(l Layout) string { return b.DrawBeside(l, 0) }

// DrawBeside is like Draw, but shows blocked units as cells filled with #.
func (b *Model) DrawBeside(l Layout, blocked uint64) string {
	at := make([]int, b.Grid) // for each unit, 1 + the index of the placement that begins there
	for i := range l.Indices() {
		at[b.Placements[i].Start] = i + 1
	}
	var s strings.Builder
	for u := 0; u < b.Grid; {
		name, fill, size := "", ".", 1
		if at[u] > 0 {
			pl := b.Placements[at[u]-1]
			name, fill, size = b.Profiles[pl.Profile].Name, "=", pl.Size
		} else if blocked&(1<<u) != 0 {
			fill = "#"
		}
		s.WriteString("|" + name + strings.Repeat(fill, b.width(size)-len(name)))
		u += size
	}
	return s.String() + "|"
}

// width returns the number of characters in a cell that spans size units, including the bars between the units.
func (b *Model) width(size int) int { return size*b.cell + size - 1 }

// Parse parses a drawing. The widths of the cells are ignored, because a profile's name determines its size. For
// example, |3g.20gb|1g.5gb|.|.|.| is equivalent to the drawing in the comment on Draw. The returned layout is always
// legal. If a cell is invalid, the error names it.
func (b *Model) Parse(drawing string) (Layout, error) {
	l, blocked, err := b.ParseBeside(drawing)
	if err == nil && blocked != 0 {
		err = fmt.Errorf("drawing %q: unit %d is blocked; specify a layout of %s without blocked units",
			drawing, bits.TrailingZeros64(blocked), b.Name)
	}
	if err != nil {
		return 0, err
	}
	return l, nil
}

// ParseBeside parses a drawing in which units can be blocked, and returns the layout and the mask of the blocked units.
func (b *Model) ParseBeside(drawing string) (l Layout, blocked uint64, err error) {
	fail := func(format string, args ...any) (Layout, uint64, error) {
		return 0, 0, fmt.Errorf("drawing %q: %s", drawing, fmt.Sprintf(format, args...))
	}
	s := strings.TrimSpace(drawing)
	if len(s) < 2 || s[0] != '|' || s[len(s)-1] != '|' {
		return fail("write the cells between bars, as in |cell|cell|")
	}
	u := 0
	for _, cell := range strings.Split(s[1:len(s)-1], "|") {
		if u >= b.Grid {
			return fail("the drawing has more than the %d units of %s", b.Grid, b.Name)
		}
		if cell != "" && strings.Trim(cell, ".") == "" {
			u++
			continue
		}
		if cell != "" && strings.Trim(cell, "#") == "" {
			blocked |= 1 << u
			u++
			continue
		}
		name := strings.TrimRight(cell, "=")
		i, ok := b.Placement(name, u)
		if !ok {
			return fail("profile %q cannot begin at unit %d of %s", name, u, b.Name)
		}
		l = l.With(i)
		u += b.Placements[i].Size
	}
	if u != b.Grid {
		return fail("the drawing has %d units, but %s has %d", u, b.Name, b.Grid)
	}
	if !b.Legal(l) {
		return fail("the layout exceeds the instance limits or the media engines of %s", b.Name)
	}
	return l, blocked, nil
}

// List returns the placements of a layout in the order of their units, for example "3g.20gb@0 1g.5gb@4", or "-" for an
// empty layout.
func (b *Model) List(l Layout) string {
	at := slices.Collect(l.Indices())
	slices.SortStableFunc(at, func(i, j int) int { return cmp.Compare(b.Placements[i].Start, b.Placements[j].Start) })
	var names []string
	for _, i := range at {
		names = append(names, b.Label(i))
	}
	if names == nil {
		return "-"
	}
	return strings.Join(names, " ")
}
