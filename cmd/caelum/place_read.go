package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// readGPUs returns the GPUs described by --board, --gpu, --idle and --ends. GPUs of the same model share one mig.Model.
func readGPUs(o placeOptions) ([]place.GPU, error) {
	var gpus []place.GPU
	var whole []*mig.Model
	models := map[string]*mig.Model{}
	var model *mig.Model
	bare := false // true if no --gpu has followed the last --board
	for _, f := range o.given {
		if f.flag != "--board" && model == nil {
			return nil, usageError{
				fmt.Errorf("put --board before %s %s; `caelum profiles` lists the GPU models", f.flag, f.value),
			}
		}
		if bare && f.flag != "--gpu" {
			gpus, bare = append(gpus, place.GPU{Model: model}), false
		}
		switch f.flag {
		case "--board":
			b, err := modelNamed(f.value)
			if err != nil {
				return nil, err
			}
			if models[b.Name] == nil {
				whole = append(whole, b)
				models[b.Name] = selected(b, o.profiles)
			}
			model, bare = models[b.Name], true
		case "--gpu":
			l, blocked, err := readDrawing(f.flag, model, f.value)
			if err != nil {
				return nil, err
			}
			gpus, bare = append(gpus, place.GPU{Model: model, Busy: l, Blocked: blocked}), false
		case "--idle":
			if err := addIdle(&gpus[len(gpus)-1], f.value); err != nil {
				return nil, err
			}
		case "--ends":
			if err := addEnds(&gpus[len(gpus)-1], f.value); err != nil {
				return nil, err
			}
		}
	}
	if bare {
		gpus = append(gpus, place.GPU{Model: model})
	}
	if gpus == nil {
		return nil, usageError{
			errors.New("no GPU specified; `--board A100-40GB` specifies one empty A100, and --help explains the " +
				"drawings of other GPUs"),
		}
	}
	return gpus, checkProfiles(o.profiles, whole...)
}

// addIdle adds the idle instances of a drawing to g. They must fit alongside the instances that jobs hold.
func addIdle(g *place.GPU, drawing string) error {
	idle, blocked, err := readDrawing("--idle", g.Model, drawing)
	if err != nil {
		return err
	}
	b := g.Model
	busy := b.DrawBeside(g.Busy, g.Blocked)
	switch {
	case blocked != 0:
		return usageError{fmt.Errorf("--idle %s contains blocked units (#); draw blocked units in --gpu", drawing)}
	case g.Idle != 0:
		return usageError{
			fmt.Errorf("--idle %s: this GPU already has an --idle; draw all of its idle instances in one "+
				"--idle", drawing),
		}
	case b.Occupied(idle)&(b.Occupied(g.Busy)|g.Blocked) != 0:
		return usageError{fmt.Errorf("--idle %s overlaps busy or blocked units of the GPU %s", drawing, busy)}
	case !b.Legal(g.Busy | idle):
		return usageError{
			fmt.Errorf(
				"--idle %s: together with %s, these instances exceed the instance limits or the engines of %s",
				drawing, busy, b.Name,
			),
		}
	}
	g.Idle = idle
	return nil
}

// addEnds sets the end times of g's instances, in seconds from now. It reads them from list, which contains one time
// for each instance, from left to right in the drawing.
func addEnds(g *place.GPU, list string) error {
	times := strings.Split(list, ",")
	switch {
	case g.Ends != nil:
		return usageError{fmt.Errorf("--ends %s: this GPU already has --ends", list)}
	case len(times) != g.Busy.Count():
		return usageError{
			fmt.Errorf(
				"--ends %s contains %s for %s, %s; specify one time per instance, or ? if the time is unknown",
				list,
				plural(len(times), "time"),
				plural(g.Busy.Count(), "instance"),
				g.Model.DrawBeside(g.Busy, g.Blocked),
			),
		}
	}
	drawn := slices.SortedFunc(g.Busy.Indices(), func(i, j int) int {
		return cmp.Compare(g.Model.Placements[i].Start, g.Model.Placements[j].Start)
	})
	g.Ends = make([]float64, len(g.Model.Placements))
	for k, i := range drawn {
		var err error
		if g.Ends[i], err = seconds(times[k]); err != nil {
			return usageError{fmt.Errorf("--ends %s: %w", list, err)}
		}
	}
	return nil
}

// seconds converts a duration such as 90s to seconds, and "?" to +Inf.
func seconds(text string) (float64, error) {
	if text == "?" {
		return math.Inf(1), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time; specify a time such as 90s, 30m or 2h, or ? if the time is "+
			"unknown", text)
	}
	return d.Seconds(), nil
}

// readRequests parses arguments of the form PROFILE[:TIME]. It returns an error if none of the GPUs has the profile.
func readRequests(gpus []place.GPU, args []string) ([]place.Request, error) {
	var models []*mig.Model
	for _, g := range gpus {
		models = append(models, g.Model)
	}
	var all []place.Request
	for _, arg := range args {
		profile, takes, timed := strings.Cut(arg, ":")
		r := place.Request{Profile: profile, Duration: math.Inf(1)}
		if timed {
			var err error
			if r.Duration, err = seconds(takes); err != nil {
				return nil, usageError{fmt.Errorf("%s: %w", arg, err)}
			}
		}
		if !slices.ContainsFunc(models, func(b *mig.Model) bool { _, ok := b.ProfileIndex(profile); return ok }) {
			return nil, usageError{
				fmt.Errorf(
					"no GPU has the profile %q: %s; use --profiles to add variants",
					profile, strings.Join(everyProfile(models), "; "),
				),
			}
		}
		all = append(all, r)
	}
	return all, nil
}
