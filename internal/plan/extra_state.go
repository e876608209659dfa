package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// prefix begins Caelum's entry in a node's Extra. The administrator or other programs own the other entries.
const prefix = "caelum="

// version is the version of the format. Agents leave a node whose text has another version out of their plans. The
// agent of that node continues to plan for it.
const version = "1"

// State is the state of a node that its agent publishes.
type State struct {
	GPUs  []place.GPU
	Since time.Time // since when the offers have been what they are
	// Private leaves the ends of jobs out of the text, because every user can read the text. Planners then take the
	// ends from slurmctld's queue.
	Private bool
}

// Text returns a node's state as text without spaces: items with semicolons between them, the version first. A GPU
// model with its profiles precedes the GPUs of that model.
//
//	board/8                                  a GPU model: units
//	profile/1g.5gb/1/1/7/0.0.0.0/0.1.2.3     a profile: name, compute slices, units, largest number of instances,
//	                                         engines (DEC ENC JPEG OFA; -1: unknown), starts
//	other/7g.40gb/7/8/1/5.0.1.1/0            likewise, a profile that is not offered
//	gpu/3g.20gb@0=1763790000,~1g.5gb@6,!80   a GPU: a busy placement with its end (Unix seconds; no end: unknown or
//	                                         private), an idle placement, blocked units (hexadecimal mask)
//	none                                     a GPU that is not managed
//	since/1763790000                         since when the offers have been what they are (Unix seconds)
//
// The text includes plain profiles that are not offered, because the largest plain profile shows the resources of the
// whole GPU. Instances of other profiles that are not offered appear as blocked units.
func Text(s State) string {
	items := []string{version, "since/" + strconv.FormatInt(s.Since.Unix(), 10)}
	last := ""
	for _, g := range s.GPUs {
		if g.Model == nil {
			items = append(items, "none")
			continue
		}
		given := func(p mig.Profile) bool {
			i, _ := g.Model.ProfileIndex(p.Name)
			return g.Offerable&g.Model.OfProfile(i) != 0
		}
		of := g.Model.Select(func(p mig.Profile) bool { return mig.Plain(p) || given(p) })
		if b := modelText(of, given); b != last {
			items, last = append(items, b), b
		}
		items = append(items, gpuText(of, g, s.Private))
	}
	return strings.Join(items, ";")
}

func modelText(b *mig.Model, given func(mig.Profile) bool) string {
	items := []string{"board/" + strconv.Itoa(b.Grid)}
	for _, p := range b.Profiles {
		kind := "other"
		if given(p) {
			kind = "profile"
		}
		items = append(items, fmt.Sprintf("%s/%s/%d/%d/%d/%s/%s", kind, p.Name, p.Compute, p.Size, p.Max,
			numbers([]int{p.DEC, p.ENC, p.JPEG, p.OFA}), numbers(p.Starts)))
	}
	return strings.Join(items, ";")
}

func gpuText(of *mig.Model, g place.GPU, private bool) string {
	busy, blocked := of.Carry(g.Model, g.Busy)
	idle, _ := of.Carry(g.Model, g.Idle)
	blocked |= g.Blocked
	var parts []string
	for i := range busy.Indices() {
		text := label(of, i)
		if g.Ends != nil && !private {
			there, _ := g.Model.Placement(of.ProfileOf(i), of.Placements[i].Start)
			if end := g.Ends[there]; !math.IsInf(end, 1) {
				text += "=" + strconv.FormatInt(int64(end), 10)
			}
		}
		parts = append(parts, text)
	}
	for i := range idle.Indices() {
		parts = append(parts, "~"+label(of, i))
	}
	if blocked != 0 {
		parts = append(parts, "!"+strconv.FormatUint(blocked, 16))
	}
	return "gpu/" + strings.Join(parts, ",")
}

func label(b *mig.Model, i int) string {
	return b.ProfileOf(i) + "@" + strconv.Itoa(b.Placements[i].Start)
}

func numbers(list []int) string {
	all := make([]string, len(list))
	for i, n := range list {
		all[i] = strconv.Itoa(n)
	}
	return strings.Join(all, ".")
}

// StateIn returns Caelum's entry in a node's Extra without its prefix; empty if there is none.
func StateIn(extra string) string {
	for w := range strings.FieldsSeq(extra) {
		if text, ok := strings.CutPrefix(w, prefix); ok {
			return text
		}
	}
	return ""
}

// WithState returns a node's Extra with this text as Caelum's entry, and with the other entries as they are. An empty
// text removes the entry.
func WithState(extra, text string) string {
	entries := slices.DeleteFunc(strings.Fields(extra), func(w string) bool { return strings.HasPrefix(w, prefix) })
	if text != "" {
		entries = append(entries, prefix+text)
	}
	return strings.Join(entries, " ")
}

// Parse reads the text that Text writes. It checks the text fully, because an administrator can change it.
func Parse(text string) (s State, err error) {
	items := strings.Split(text, ";")
	if items[0] != version {
		return s, fmt.Errorf("the node's text has version %.20q; this release reads version %s", items[0], version)
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
			return s, fmt.Errorf("unknown item %.40q in the node's text", items[0])
		}
		items = items[1:]
	}
	return s, nil
}

// described is a GPU model with the placements that may be offered.
type described struct {
	*mig.Model
	offerable mig.Layout
}

// models holds one *mig.Model for each description, because policies compare GPU models by pointer.
var models sync.Map

// maxModels limits how many descriptions are kept. A cluster has a few, but an administrator can write any text.
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
		if len(f) != 7 {
			return b, fmt.Errorf("%.40q is not the description of a profile", item)
		}
		p := mig.Profile{Name: f[1], SM: -1, CE: -1}
		var engines []int
		for _, e := range []error{
			number(f[2], &p.Compute), number(f[3], &p.Size), number(f[4], &p.Max),
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
			return g, fmt.Errorf("%.40q is not a placement of this GPU model or overlaps another one", part)
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
