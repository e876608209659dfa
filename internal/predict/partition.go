package predict

import (
	"cmp"
	"slices"

	"caelum/internal/mig"
)

// Measured is what a model was seen to do with one batch size on one profile.
type Measured struct {
	Batch      int
	Profile    string
	Latency    float64 // seconds of a step
	Throughput float64 // samples a second
	MiB        float64 // memory in use; 0: not known, but it ran
}

// Goal is what a partition is chosen for: Lambda, from 0 to 1, weighs latency against throughput; a step and Margin
// must be done within Deadline, in seconds, 0: any time.
type Goal struct{ Lambda, Deadline, Margin float64 }

// Partition is a choice and what it is worth: more is better.
type Partition struct {
	Measured
	Worth float64
}

// Partitions is DynaP's batch-aware choice of a profile, best first, for a model of which these are the measurements;
// with batch 0 it chooses that too. On each profile the base is the largest batch that fits, and a choice is worth
// lambda times the share by which its step is shorter, and 1 - lambda times the share by which it does more in a
// second. Who does not fit or misses the deadline is no choice; of choices worth as much the smallest profile comes
// first.
func Partitions(b *mig.Model, all []Measured, batch int, g Goal) []Partition {
	base := map[string]Measured{}
	for _, m := range all {
		if m.fits(b) && m.Batch > base[m.Profile].Batch {
			base[m.Profile] = m
		}
	}
	var choices []Partition
	for _, m := range all {
		if !m.fits(b) || batch != 0 && m.Batch != batch || g.Deadline > 0 && m.Latency+g.Margin > g.Deadline {
			continue
		}
		to := base[m.Profile]
		worth := g.Lambda*(to.Latency-m.Latency)/to.Latency + (1-g.Lambda)*(m.Throughput-to.Throughput)/to.Throughput
		choices = append(choices, Partition{m, worth})
	}
	slices.SortStableFunc(choices, func(x, y Partition) int {
		p, q := profile(b, x.Profile), profile(b, y.Profile)
		return cmp.Or(cmp.Compare(y.Worth, x.Worth), cmp.Compare(p.Size, q.Size), cmp.Compare(p.Compute, q.Compute))
	})
	return choices
}

// fits reports whether the measurement makes sense on this GPU model: the profile is there and has the memory.
func (m Measured) fits(b *mig.Model) bool {
	p := profile(b, m.Profile)
	return p != nil && m.MiB <= p.Memory() && m.Batch > 0 && m.Latency > 0 && m.Throughput > 0
}

func profile(b *mig.Model, name string) *mig.Profile {
	k, ok := b.ProfileIndex(name)
	if !ok {
		return nil
	}
	return &b.Profiles[k]
}
