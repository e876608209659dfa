package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// How caelum place reads its command line.

// readGPUs makes the GPUs of the flags. GPUs of one board share it.
func readGPUs(o placeOptions) ([]place.GPU, error) {
	var gpus []place.GPU
	var whole []*mig.Board
	boards := map[string]*mig.Board{}
	var board *mig.Board
	bare := false // a --board that no --gpu has followed yet
	for _, f := range o.given {
		if f.flag != "--board" && board == nil {
			return nil, usageError{fmt.Errorf("%s %s: of which board? Put --board before it; `caelum profiles` lists them", f.flag, f.value)}
		}
		if bare && f.flag != "--gpu" {
			gpus, bare = append(gpus, place.GPU{Board: board}), false
		}
		switch f.flag {
		case "--board":
			b, err := boardNamed(f.value)
			if err != nil {
				return nil, err
			}
			if boards[b.Name] == nil {
				whole = append(whole, b)
				boards[b.Name] = selected(b, o.profiles)
			}
			board, bare = boards[b.Name], true
		case "--gpu":
			l, blocked, err := readDrawing(f.flag, board, f.value)
			if err != nil {
				return nil, err
			}
			gpus, bare = append(gpus, place.GPU{Board: board, Layout: l, Blocked: blocked}), false
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
		gpus = append(gpus, place.GPU{Board: board})
	}
	if gpus == nil {
		return nil, usageError{errors.New("on which GPUs? `--board A100-40GB` is one empty A100; --help shows how to draw others")}
	}
	return gpus, checkProfiles(o.profiles, whole...)
}

func addIdle(g *place.GPU, drawing string) error {
	idle, blocked, err := readDrawing("--idle", g.Board, drawing)
	if err != nil {
		return err
	}
	b := g.Board
	busy := b.DrawBeside(g.Layout, g.Blocked)
	switch {
	case blocked != 0:
		return usageError{fmt.Errorf("--idle %s: blocked units (#) belong into --gpu", drawing)}
	case g.Idle != 0:
		return usageError{fmt.Errorf("--idle %s: this GPU has an --idle already; draw all idle instances of a GPU in one", drawing)}
	case b.Occupied(idle)&(b.Occupied(g.Layout)|g.Blocked) != 0:
		return usageError{fmt.Errorf("--idle %s: overlaps what is busy or blocked on the GPU, %s", drawing, busy)}
	case !b.Legal(g.Layout | idle):
		return usageError{fmt.Errorf("--idle %s: together with %s it is over the instance limits or engines of %s", drawing, busy, b.Name)}
	}
	g.Idle = idle
	return nil
}

// addEnds says when the instances that are drawn on a GPU end, in seconds from now.
func addEnds(g *place.GPU, list string) error {
	times := strings.Split(list, ",")
	switch {
	case g.Ends != nil:
		return usageError{fmt.Errorf("--ends %s: this GPU has --ends already", list)}
	case len(times) != g.Layout.Count():
		return usageError{fmt.Errorf("--ends %s: %d times for %d instances, %s", list, len(times), g.Layout.Count(), g.Board.DrawBeside(g.Layout, g.Blocked))}
	}
	drawn := slices.SortedFunc(g.Layout.Indices(), func(i, j int) int {
		return cmp.Compare(g.Board.Placements[i].Start, g.Board.Placements[j].Start)
	})
	g.Ends = make([]float64, len(g.Board.Placements))
	for k, i := range drawn {
		var err error
		if g.Ends[i], err = seconds(times[k]); err != nil {
			return usageError{fmt.Errorf("--ends %s: %w", list, err)}
		}
	}
	return nil
}

// seconds reads a time; ? is +Inf.
func seconds(text string) (float64, error) {
	if text == "?" {
		return math.Inf(1), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no time; write 90s, 30m or 2h, or ? for unknown", text)
	}
	return d.Seconds(), nil
}

// readRequests reads PROFILE[:TIME]. Some GPU must have the profile.
func readRequests(gpus []place.GPU, args []string) ([]place.Request, error) {
	var boards []*mig.Board
	for _, g := range gpus {
		boards = append(boards, g.Board)
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
		if !slices.ContainsFunc(boards, func(b *mig.Board) bool { _, ok := b.ProfileIndex(profile); return ok }) {
			return nil, usageError{fmt.Errorf("no profile %q here: %s (--profiles adds variants)", profile, strings.Join(everyProfile(boards), "; "))}
		}
		all = append(all, r)
	}
	return all, nil
}
