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

// Models returns the GPU models in models.txt that support MIG, including all of their profiles. Only simulations,
// tests, the emulator and `caelumd check` call it; the agent reads the geometry of its GPUs from NVML instead.
func Models() []*Model { return slices.DeleteFunc(EveryModel(), (*Model).WithoutMIG) }

// EveryModel returns the GPU models in models.txt, including those without MIG, which have only the Full profile.
func EveryModel() []*Model { return slices.Clone(models()) }

// ModelByName returns the GPU model in models.txt with the given name, such as A100-40GB, ignoring case. The model of a
// GPU without MIG has the Full profile and, if the name ends with a number of units, as in L40S-48GB/4, fractions. If
// there is no such model, the error lists all names.
func ModelByName(name string) (*Model, error) {
	var known []string
	board, units, divided := strings.Cut(name, "/")
	for _, b := range models() {
		if strings.EqualFold(b.Name, board) && divided {
			return b.divided(units)
		}
		if strings.EqualFold(b.Name, board) {
			return b, nil
		}
		known = append(known, b.Name)
	}
	return nil, fmt.Errorf("unknown GPU model %q; use one of %s", name, strings.Join(known, ", "))
}

// divided returns the model of the same GPU with fractions, and with the number of units in its name.
func (b *Model) divided(units string) (*Model, error) {
	k, err := strconv.Atoi(units)
	if err != nil || !b.WithoutMIG() {
		return nil, fmt.Errorf("GPU model %s/%s: only a GPU without MIG has fractions; write the number of units, "+
			"as in L40S-48GB/4", b.Name, units)
	}
	memoryMiB := b.Profiles[0].MemoryMiB
	f, err := Fractions(b.Device, memoryMiB, k)
	if err != nil {
		return nil, err
	}
	f.Name = fmt.Sprintf("%s/%d", b.Name, k)
	return f.WithFull(memoryMiB), nil
}

// WithFraction returns the models of the GPUs without MIG in models.txt, with each possible number of units, that have
// the given fraction.
func WithFraction(profile string) (all []*Model) {
	for _, b := range models() {
		for k := MinFractions; b.WithoutMIG() && k <= MaxFractions; k++ {
			f, err := b.divided(strconv.Itoa(k))
			if err != nil {
				break // no larger number of units is possible
			}
			if _, ok := f.ProfileIndex(profile); ok {
				all = append(all, f)
			}
		}
	}
	return all
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
		case f[0] == "full" && len(f) == 2 && head.Grid == 1: // a GPU without MIG; otherwise, only for the emulator
			var memory uint64
			if memory, err = strconv.ParseUint(f[1], 10, 64); err == nil {
				b := Without(head.Device).WithFull(memory)
				b.Name, b.PCI, head = head.Name, head.PCI, Model{}
				all = append(all, b)
			}
		case f[0] == "full":
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
	grid, err := strconv.Atoi(f[2])
	if f[5] == "none" { // a GPU without MIG: the number is not that of its units
		grid = 1
	}
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
