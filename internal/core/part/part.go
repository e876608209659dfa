package part

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
)

// Part is one node's part of a plan.
type Part struct {
	// Beat is the name of the node whose Comment contains the planner's heartbeat.
	Beat   string
	Offers []Offer
	// Jobs lists the waiting jobs for which the node offers slices. An array has one entry for each planned task.
	Jobs []Job
	// Held lists the ids of the waiting jobs whose records the agent must read: held jobs that it may release, and
	// jobs whose tags or profile it must change.
	Held []uint32
	// Stray lists the ids of the het job components that the agent must hold (plan.Stray).
	Stray    []uint32
	Reserved *Reservation
}

// Spot is a placement on a GPU of the node.
type Spot struct {
	GPU     int // the index of the GPU in the node's state
	Profile string
	Start   int
}

// Offer is a placement to offer. As is the profile name under which the agent offers the placement; it is empty if that
// name is the placement's own profile.
type Offer struct {
	Spot
	As string
}

// Job is a waiting job and the spots on the node that the plan assigns to it. Array is the id of the job's array, or 0.
// Spots is empty if the agent must release a held job whose nodes are powered down.
type Job struct {
	ID, Array uint32
	Spots     []Spot
}

// Reservation holds the spots on the node that the plan reserves for a job, and the job's expected start in Unix
// seconds.
type Reservation struct {
	Job   uint32
	At    int64
	Spots []Spot
}

// Of returns a member's part of a plan, without Beat, Held and Stray.
func Of(v *plan.View, all offer.Plan, member int) (p Part) {
	on := v.Nodes[member]
	spots := func(list []offer.Spot) (here []Spot) {
		for _, s := range list {
			if k := slices.Index(on, s.GPU); k >= 0 {
				here = append(here, spotOf(v.Pool.GPU(s.GPU).Model, k, s.Placement))
			}
		}
		return here
	}
	for k, g := range on {
		for i := range all.Offers[g].Indices() {
			o := Offer{Spot: spotOf(v.Pool.GPU(g).Model, k, i)}
			o.As = all.AdvertisedAs[offer.Spot{GPU: g, Placement: i}]
			p.Offers = append(p.Offers, o)
		}
	}
	for k, list := range all.Spots {
		if here := spots(list); here != nil {
			p.Jobs = append(p.Jobs, Job{v.Jobs[k].ID, v.Waiting[k].ArrayJob, here})
		}
	}
	if r := all.Reserved; r != nil && !math.IsInf(r.At, 1) {
		if here := spots(r.Spots); here != nil {
			p.Reserved = &Reservation{v.Jobs[r.Job].ID, int64(r.At), here}
		}
	}
	return p
}

func spotOf(m *mig.Model, gpu, placement int) Spot {
	return Spot{gpu, m.ProfileOf(placement), m.Placements[placement].Start}
}

// Key returns the key under which an agent stores a job's spots: the id of its array, or its own id.
func (j Job) Key() uint32 { return cmp.Or(j.Array, j.ID) }

// prefix and beatPrefix are the prefixes of the entries in a node's Comment. All other entries belong to the
// administrator or to other programs.
const (
	prefix     = "caelum-part="
	beatPrefix = "caelum-beat="
)

// In returns the part contained in a node's Comment, in the form written by Text, or an empty string if there is none.
func In(comment string) string { return entry(comment, prefix) }

// With returns a node's Comment with the part's entry set to text, or without this entry if text is empty. The other
// entries remain unchanged.
func With(comment, text string) string { return withEntry(comment, prefix, text) }

func entry(comment, prefix string) string {
	for w := range strings.FieldsSeq(comment) {
		if text, ok := strings.CutPrefix(w, prefix); ok {
			return text
		}
	}
	return ""
}

// withEntry replaces the entry that has the given prefix. If the entry is already correct, the comment remains
// unchanged, including its spaces.
func withEntry(comment, prefix, text string) string {
	if entry(comment, prefix) == text {
		return comment
	}
	words := slices.DeleteFunc(strings.Fields(comment), func(w string) bool { return strings.HasPrefix(w, prefix) })
	if text != "" {
		words = append(words, prefix+text)
	}
	return strings.Join(words, " ")
}
