package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// prefix is the prefix of Caelum's entry in a node's Extra. All other entries belong to the administrator or to other
// programs.
const prefix = "caelum="

// version is the version of the state's format. Agents exclude nodes that publish another version from their plans, but
// never their own node.
const version = "1"

// State is the node state that an agent publishes.
type State struct {
	GPUs  []place.GPU
	Since time.Time // the time at which the offers last changed
	// Private means that Text omits the jobs' expected ends, because every user can read the text. Planners then
	// compute the ends from slurmctld's queue.
	Private bool
}

// Text returns a node's state as a string without spaces. It consists of items separated by semicolons, beginning
// with the version. A GPU model and its profiles precede the GPUs of that model.
//
//	board/8                                  a GPU model: units
//	profile/1g.5gb/1/1/7/0.0.0.0/0.1.2.3     a profile: name, compute slices, units, largest number of instances,
//	                                         engines (DEC ENC JPEG OFA; -1: unknown), starts
//	profile/full/1/1/1/-1.-1.-1.-1/0/46068   the only profile of a GPU without MIG, with the GPU's memory in MiB
//	other/7g.40gb/7/8/1/5.0.1.1/0            a profile that is not offered, with the fields of profile
//	gpu/3g.20gb@0=1763790000,~1g.5gb@6,!80   a GPU: a busy placement with its end (Unix seconds; no end: unknown or
//	                                         private), an idle placement, blocked units (hexadecimal mask)
//	none                                     a GPU that is not managed
//	since/1763790000                         the time of the last change to the offers (Unix seconds)
//
// The string describes all plain profiles, even those that are not offered, because the largest of them shows the
// resources of the entire GPU. Other profiles are described only if they are offered; instances of the rest appear as
// blocked units.
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
		if b.WithoutMIG() {
			items[len(items)-1] += fmt.Sprintf("/%d", p.MemoryMiB)
		}
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

// StateIn returns Caelum's entry in a node's Extra, without its prefix, or an empty string if Extra has no such
// entry.
func StateIn(extra string) string {
	for w := range strings.FieldsSeq(extra) {
		if text, ok := strings.CutPrefix(w, prefix); ok {
			return text
		}
	}
	return ""
}

// WithState returns a node's Extra with text as Caelum's entry, or without this entry if text is empty. The other
// entries remain unchanged.
func WithState(extra, text string) string { return withEntry(extra, prefix, text) }
