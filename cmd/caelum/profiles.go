package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/core/mig"
)

func newProfiles(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "profiles [BOARD]",
		Short: "List a GPU model's profiles and the units at which they may start",
		Long: `profiles lists the profiles of a GPU model. For each one, it prints the number of compute slices,
the number of units (the cells of a drawing), the memory, the maximum number of simultaneous
instances, and the units at which an instance may start. Without BOARD, it lists the GPU models.

` + tablesHelp,
		Example: `  caelum profiles
  caelum profiles A100-40GB
  caelum profiles A100-40GB --all          # with the variants for media engines and graphics`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listModels(cmd.OutOrStdout(), g)
			}
			b, err := modelNamed(args[0])
			if err != nil {
				return err
			}
			if !all {
				b = b.Select(mig.Plain)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), modelJSON(b, true))
			}
			printProfiles(cmd.OutOrStdout(), b, all)
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false,
		"include the variants (+me, +me.all, -me, +gfx), and show the media engines of each profile")
	return cmd
}

// modelEntry is the JSON form of a GPU model.
type modelEntry struct {
	Model    string         `json:"board"`
	Device   string         `json:"device"` // the name in NVML
	Type     string         `json:"type"`   // the Type in gres.conf
	Units    int            `json:"units"`
	Compute  int            `json:"compute"` // the number of compute slices
	Reset    bool           `json:"reset"`   // true if changing the MIG mode requires a GPU reset
	Profiles []profileEntry `json:"profiles,omitempty"`
}

// profileEntry is the JSON form of a profile. Unknown values are omitted.
type profileEntry struct {
	Name      string `json:"name"`
	ID        int    `json:"id"` // the GPU instance profile id in NVML
	Compute   int    `json:"compute"`
	Units     int    `json:"units"`
	MemoryMiB uint64 `json:"memory_mib,omitempty"`
	Max       int    `json:"max"`
	Starts    []int  `json:"starts"`
	DEC       *int   `json:"dec,omitempty"`
	ENC       *int   `json:"enc,omitempty"`
	JPEG      *int   `json:"jpeg,omitempty"`
	OFA       *int   `json:"ofa,omitempty"`
	Gfx       bool   `json:"gfx"`
}

func modelJSON(b *mig.Model, profiles bool) modelEntry {
	e := modelEntry{
		Model:   b.Name,
		Device:  b.Device,
		Type:    b.Type,
		Units:   b.Grid,
		Compute: computeSlices(b),
		Reset:   b.Reset,
	}
	if !profiles {
		return e
	}
	known := func(n int) *int {
		if n < 0 {
			return nil
		}
		return &n
	}
	for _, p := range b.Profiles {
		e.Profiles = append(e.Profiles, profileEntry{p.Name, p.ID, p.Compute, p.Size, p.MemoryMiB, p.Max, p.Starts,
			known(p.DEC), known(p.ENC), known(p.JPEG), known(p.OFA), p.Gfx})
	}
	return e
}

// computeSlices returns the number of compute slices of a GPU. The largest profile includes all of them.
func computeSlices(b *mig.Model) int {
	n := 0
	for _, p := range b.Profiles {
		n = max(n, p.Compute)
	}
	return n
}

func listModels(w io.Writer, g *globals) error {
	if g.json {
		var all []modelEntry
		for _, b := range mig.Models() {
			all = append(all, modelJSON(b, false))
		}
		return printJSON(w, map[string]any{"boards": all})
	}
	table := [][]string{{"BOARD", "UNITS", "COMPUTE", "DEVICE"}}
	for _, b := range mig.Models() {
		table = append(table, []string{b.Name, strconv.Itoa(b.Grid), strconv.Itoa(computeSlices(b)), b.Device})
	}
	rows(w, []bool{false, true, true, false}, table)
	return nil
}

func printProfiles(w io.Writer, b *mig.Model, engines bool) {
	fmt.Fprintf(w, "%s (%s): %d units, %d compute slices\n\n", b.Name, b.Device, b.Grid, computeSlices(b))
	right := []bool{false, true, true, true, true, false}
	table := [][]string{{"PROFILE", "COMPUTE", "UNITS", "MIB", "MOST", "STARTS"}}
	if engines {
		right = append(right[:5], true, true, true, true, false, false)
		table = [][]string{{"PROFILE", "COMPUTE", "UNITS", "MIB", "MOST", "DEC", "ENC", "JPEG", "OFA", "GFX", "STARTS"}}
	}
	for _, p := range b.Profiles {
		memory := "-"
		if p.MemoryMiB > 0 {
			memory = strconv.FormatUint(p.MemoryMiB, 10)
		}
		row := []string{p.Name, strconv.Itoa(p.Compute), strconv.Itoa(p.Size), memory, strconv.Itoa(p.Max)}
		if engines {
			gfx := "no"
			if p.Gfx {
				gfx = "yes"
			}
			row = append(row, number(p.DEC), number(p.ENC), number(p.JPEG), number(p.OFA), gfx)
		}
		table = append(table, append(row, starts(b, p)))
	}
	rows(w, right, table)
}

// starts returns the possible starts of a profile as a row with one column for each unit, in which a dot marks a unit
// at which the profile cannot start.
func starts(b *mig.Model, p mig.Profile) string {
	cells := make([]string, b.Grid)
	for u := range cells {
		cells[u] = "."
	}
	for _, s := range p.Starts {
		cells[s] = strconv.Itoa(s)
	}
	return strings.Join(cells, " ")
}
