package predict

import (
	"cmp"
	"slices"

	"caelum/internal/mig"
)

// Measured is a measurement of a machine-learning model with one batch size on one profile.
type Measured struct {
	Batch      int
	Profile    string
	Latency    float64 // seconds of a step
	Throughput float64 // samples per second
	MiB        float64 // memory in use; 0 if unknown, although the model has run
}

// Goal is the goal of a choice. Lambda, from 0 to 1, is the weight of latency against throughput. A step plus Margin
// must fit within Deadline, in seconds. 0 means no deadline.
type Goal struct{ Lambda, Deadline, Margin float64 }

// Partition is a choice. Worth is its value, the F of the DynaP method. A higher value is better.
type Partition struct {
	Measured
	Worth float64
}

// Partitions returns the choices of a profile for a model with these measurements, best first (the batch-aware choice
// of DynaP). If batch is 0, Partitions also chooses the batch size. On each profile, choices are compared with the
// largest batch that fits, the base. The value of a choice is lambda times the share by which its step is shorter than
// that of the base, plus (1 - lambda) times the share by which its throughput is higher. Measurements that do not fit
// or that miss the deadline are left out. Among equal choices, the smallest profile comes first.
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

// fits reports whether the measurement is possible on this GPU model, which means that the profile
// exists and has enough memory.
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
