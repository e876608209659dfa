package plan

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Parse parses a node state in the format that Text returns. It validates everything, because administrators can change
// a node's Extra.
func Parse(text string) (s State, err error) {
	items := strings.Split(text, ";")
	if items[0] != version {
		return s, fmt.Errorf(
			"the node's state has version %.20q, but this release reads version %s; "+
				"install the same release on all hosts",
			items[0],
			version,
		)
	}
	var model described
	for items = items[1:]; len(items) > 0; {
		kind, rest, _ := strings.Cut(items[0], "/")
		switch {
		case kind == "board":
			n := 1
			for n < len(items) && (strings.HasPrefix(items[n], "profile/") || strings.HasPrefix(items[n], "other/")) {
				n++
			}
			if model, err = modelOf(strings.Join(items[:n], ";")); err != nil {
				return s, err
			}
			items = items[n:]
			continue
		case kind == "since":
			unix, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				return s, err
			}
			s.Since = time.Unix(unix, 0)
		case kind == "none" && rest == "":
			s.GPUs = append(s.GPUs, place.GPU{})
		case kind == "gpu" && model.Model != nil:
			g, err := parseGPU(model, rest)
			if err != nil {
				return s, fmt.Errorf("GPU %d: %w", len(s.GPUs), err)
			}
			s.GPUs = append(s.GPUs, g)
		default:
			return s, fmt.Errorf("the node's state contains the unknown item %.40q", items[0])
		}
		items = items[1:]
	}
	return s, nil
}

// described is a GPU model together with the placements that can be offered on its GPUs.
type described struct {
	*mig.Model
	offerable mig.Layout
}

// models caches one *mig.Model per description of a GPU model, because policies compare GPU models by pointer.
var models sync.Map

// maxModels limits the number of stored descriptions. A cluster has only a few GPU models, but administrators can
// write any number of descriptions.
const maxModels = 1000

func modelOf(text string) (described, error) {
	if b, ok := models.Load(text); ok {
		return b.(described), nil
	}
	b, err := parseModel(text)
	if err != nil {
		return b, err
	}
	n := 0
	models.Range(func(any, any) bool { n++; return n < maxModels })
	if n == maxModels {
		models.Clear()
	}
	kept, _ := models.LoadOrStore(text, b)
	return kept.(described), nil
}

func parseModel(text string) (b described, err error) {
	items := strings.Split(text, ";")
	grid, err := strconv.Atoi(strings.TrimPrefix(items[0], "board/"))
	if err != nil {
		return b, err
	}
	var profiles []mig.Profile
	given := map[string]bool{}
	for _, item := range items[1:] {
		f := strings.Split(item, "/")
		if len(f) != 7 && len(f) != 8 {
			return b, fmt.Errorf("%.40q is not the description of a profile", item)
		}
		p := mig.Profile{Name: f[1], SM: -1, CE: -1}
		if len(f) == 8 {
			p.MemoryMiB, err = strconv.ParseUint(f[7], 10, 64)
		}
		var engines []int
		for _, e := range []error{
			err, number(f[2], &p.Compute), number(f[3], &p.Size), number(f[4], &p.Max),
			numbersOf(f[5], &engines), numbersOf(f[6], &p.Starts),
		} {
			err = errors.Join(err, e)
		}
		if err != nil || len(engines) != 4 {
			return b, fmt.Errorf("%.40q is not the description of a profile", item)
		}
		p.DEC, p.ENC, p.JPEG, p.OFA = engines[0], engines[1], engines[2], engines[3]
		profiles, given[p.Name] = append(profiles, p), f[0] == "profile"
	}
	if b.Model, err = mig.NewModel("board", "gpu", "", grid, profiles); err != nil {
		return b, err
	}
	for i, p := range b.Profiles {
		if given[p.Name] {
			b.offerable |= b.OfProfile(i)
		}
	}
	return b, nil
}

func number(text string, to *int) (err error) {
	*to, err = strconv.Atoi(text)
	return err
}

func numbersOf(text string, to *[]int) error {
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return err
		}
		*to = append(*to, n)
	}
	return nil
}

func parseGPU(b described, text string) (g place.GPU, err error) {
	g.Model, g.Offerable = b.Model, b.offerable
	if text == "" {
		return g, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if mask, ok := strings.CutPrefix(part, "!"); ok {
			if g.Blocked, err = strconv.ParseUint(mask, 16, 64); err != nil {
				return g, err
			}
			continue
		}
		name, idle := strings.CutPrefix(part, "~")
		name, end, ends := strings.Cut(name, "=")
		profile, at, _ := strings.Cut(name, "@")
		start, err := strconv.Atoi(at)
		if err != nil {
			return g, err
		}
		i, ok := b.Placement(profile, start)
		if !ok || !b.Fits(g.Busy|g.Idle, i) {
			return g, fmt.Errorf("%.40q is not a placement of the GPU model, or overlaps another placement", part)
		}
		until := math.Inf(1)
		if ends {
			if until, err = strconv.ParseFloat(end, 64); err != nil {
				return g, err
			}
		}
		if idle {
			g.Idle = g.Idle.With(i)
		} else {
			g.Busy = g.Busy.With(i)
			g.Expect(i, until)
		}
	}
	if b.Occupied(g.Busy|g.Idle)&g.Blocked != 0 {
		return g, errors.New("a placement overlaps blocked units")
	}
	return g, nil
}
