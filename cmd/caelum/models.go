package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/api"
	"caelum/internal/mig"
)

// What profiles, layouts and place have in common: GPU models and profiles by name, and drawings on the page.

// tablesHelp says what the commands that know GPU models by name stand on.
const tablesHelp = `It needs neither agent nor GPU: it knows the boards from Caelum's tables, of which "caelum profiles" is the list. A
board may be shortened as long as one is meant (A30, h200). What a node's driver allows, "caelum slurm-config" asks there.`

// boardNamed finds a GPU model of the tables by its name, the beginning of it, its Type in gres.conf or NVML's name for
// it, in upper or lower case. The error lists the GPU models that may be meant.
func modelNamed(name string) (*mig.Model, error) {
	b, err := mig.ModelByName(name)
	if err == nil {
		return b, nil
	}
	var meant []*mig.Model
	var names []string
	for _, b := range mig.Models() {
		begins := name != "" && strings.HasPrefix(strings.ToLower(b.Name), strings.ToLower(name))
		if begins || strings.EqualFold(b.Type, name) || strings.EqualFold(b.Device, name) {
			meant = append(meant, b)
			names = append(names, b.Name)
		}
	}
	switch len(meant) {
	case 0:
		return nil, usageError{err}
	case 1:
		return meant[0], nil
	}
	return nil, usageError{fmt.Errorf("board %q may be %s: name one", name, strings.Join(names, " or "))}
}

// selected is the GPU model with the profiles of --profiles: with none, those without variants; "all" means every one.
// Names that the GPU model does not have are left to the caller, who may have several GPU models.
func selected(b *mig.Model, names []string) *mig.Model {
	return b.Select(func(p mig.Profile) bool {
		switch {
		case len(names) == 0:
			return mig.Plain(p)
		case slices.Equal(names, []string{"all"}):
			return true
		}
		return slices.Contains(names, p.Name)
	})
}

// checkProfiles finds the first of the names of --profiles that no GPU model has.
func checkProfiles(names []string, models ...*mig.Model) error {
	if len(names) == 0 || slices.Equal(names, []string{"all"}) {
		return nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(models, func(b *mig.Model) bool { _, ok := b.ProfileIndex(name); return ok }) {
			return usageError{fmt.Errorf("--profiles: no %q; %s", name, strings.Join(everyProfile(models), "; "))}
		}
	}
	return nil
}

// everyProfile says, by GPU model, which profiles there are.
func everyProfile(models []*mig.Model) []string {
	var said []string
	for _, b := range models {
		if line := b.Name + " has " + strings.Join(profileNames(b), ", "); !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	return said
}

func profileNames(b *mig.Model) []string {
	var names []string
	for _, p := range b.Profiles {
		names = append(names, p.Name)
	}
	return names
}

// readDrawing reads the value of a flag: a layout, and the units that are drawn as blocked.
func readDrawing(flag string, b *mig.Model, drawing string) (mig.Layout, uint64, error) {
	l, blocked, err := b.ParseBeside(drawing)
	if err != nil {
		return 0, 0, usageError{
			fmt.Errorf("%s: %w; `caelum profiles %s` shows what may start where, and here %s count (--profiles)",
				flag, err, b.Name, strings.Join(profileNames(b), ", ")),
		}
	}
	return l, blocked, nil
}

// ruler numbers the units above a drawing.
func ruler(b *mig.Model) string {
	width := (len(b.Draw(0)) - 1) / b.Grid
	var s strings.Builder
	for u := range b.Grid {
		fmt.Fprintf(&s, " %-*d", width-1, u)
	}
	return s.String() + " "
}

// measures are what a layout leaves open, as columns.
func measures(n *mig.Node) string {
	return fmt.Sprintf("%5d  %2d  %.2f", n.Reach, n.CC, n.Frag)
}

const measuresHead = "REACH  CC  FRAG"

// measuresHelp explains the columns.
const measuresHelp = `REACH is the number of maximal layouts (nothing more fits) that contain what is drawn, CC the number of placements that are
still open, FRAG how much of the free room is of no use where it is, from 0 to 1 (mean over the profiles).`

// drawn is a layout with its measures, for JSON.
type drawn struct {
	Drawing    string          `json:"drawing"`
	Placements []api.Placement `json:"placements"`
	Reach      int             `json:"reach"`
	CC         int             `json:"cc"`
	Frag       float64         `json:"frag"`
}

func drawNode(n *mig.Node) drawn {
	b := n.Table().Model
	return drawn{b.DrawBeside(n.Layout, n.Table().Blocked), placements(b, n.Layout), n.Reach, n.CC, n.Frag}
}

// placements are those of a layout, by start.
func placements(b *mig.Model, l mig.Layout) []api.Placement {
	all := []api.Placement{}
	for i := range l.Indices() {
		pl := b.Placements[i]
		all = append(all, api.Placement{Profile: b.Profiles[pl.Profile].Name, Start: pl.Start, Size: pl.Size})
	}
	slices.SortStableFunc(all, func(a, c api.Placement) int { return cmp.Compare(a.Start, c.Start) })
	return all
}

// number is a count of the tables, where -1 means that nobody has shown it.
func number(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// rows writes a table, its numeric columns (those that are marked) to the right.
func rows(w io.Writer, right []bool, table [][]string) {
	width := make([]int, len(right))
	for _, row := range table {
		for k, cell := range row {
			width[k] = max(width[k], len(cell))
		}
	}
	for _, row := range table {
		var s strings.Builder
		for k, cell := range row {
			pad := strings.Repeat(" ", width[k]-len(cell))
			if right[k] {
				cell = pad + cell
			} else {
				cell += pad
			}
			s.WriteString(cell + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(s.String(), " "))
	}
}
