package mig

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed models.txt
var modelsText string

var models = sync.OnceValue(func() []*Model {
	bs, err := parseModels(modelsText)
	if err != nil {
		panic("mig: models.txt: " + err.Error())
	}
	return bs
})

// Models returns the GPU models in models.txt, including all of their profiles. Only simulations, tests, the emulator
// and `caelumd check` call it; the agent reads the geometry of its GPUs from NVML instead.
func Models() []*Model { return slices.Clone(models()) }

// ModelByName returns the GPU model in models.txt with the given name, such as A100-40GB, ignoring case. If there is no
// such model, the error lists all names.
func ModelByName(name string) (*Model, error) {
	var known []string
	for _, b := range models() {
		if strings.EqualFold(b.Name, name) {
			return b, nil
		}
		known = append(known, b.Name)
	}
	return nil, fmt.Errorf("unknown GPU model %q; use one of %s", name, strings.Join(known, ", "))
}

// parseModels parses the format described at the beginning of models.txt.
func parseModels(text string) ([]*Model, error) {
	var all []*Model
	var head Model
	var profiles []Profile
	flush := func() error {
		if head.Name == "" {
			return nil
		}
		head.total = totals(head.Grid, profiles)
		b, err := newModel(head, profiles)
		if err == nil {
			all = append(all, b)
		}
		head, profiles = Model{}, nil
		return err
	}
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		var err error
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case f[0] == "board":
			if err = flush(); err == nil {
				head, err = parseHead(f)
			}
		case f[0] == "full": // only for the emulator
		case f[0] == "profile" && head.Name != "":
			var p Profile
			p, err = parseProfile(f)
			profiles = append(profiles, p)
		default:
			err = fmt.Errorf("line %q is not a board, full or profile line", f[0])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return all, flush()
}

func parseHead(f []string) (Model, error) {
	if len(f) < 7 || !slices.Contains([]string{"reset", "live", "none"}, f[5]) {
		return Model{}, errors.New(`a board line must have the form "board name grid type pci reset|live|none device"`)
	}
	if f[5] == "none" { // a GPU without MIG
		return Model{}, nil
	}
	grid, err := strconv.Atoi(f[2])
	return Model{
		Name:   f[1],
		Grid:   grid,
		Type:   f[3],
		PCI:    f[4],
		Reset:  f[5] == "reset",
		Device: strings.Join(f[6:], " "),
	}, err
}

func parseProfile(f []string) (Profile, error) {
	if len(f) != 16 {
		return Profile{}, fmt.Errorf("the profile line has %d fields, but must have 16", len(f))
	}
	const unknown = -1
	var err error
	number := func(s string) int {
		if s == "-" {
			return unknown
		}
		n, e := strconv.Atoi(s)
		if e != nil && err == nil {
			err = e
		}
		return n
	}
	p := Profile{
		Name: f[1], ID: number(f[2]), Compute: number(f[3]), Size: number(f[4]), Max: number(f[5]),
		SM: number(f[6]), MemoryMiB: uint64(max(number(f[7]), 0)), CE: number(f[8]),
		DEC: number(f[9]), ENC: number(f[10]), JPEG: number(f[11]), OFA: number(f[12]),
		Gfx: f[13] == "gfx", Enum: f[14],
	}
	for _, s := range strings.Split(f[15], ",") {
		p.Starts = append(p.Starts, number(s))
	}
	return p, err
}
