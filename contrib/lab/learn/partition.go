package main

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
)

// Measured is a measurement of a machine-learning model with a certain batch size on a certain profile.
type Measured struct {
	Batch      int
	Profile    string
	Latency    float64 // duration of a training step in seconds
	Throughput float64 // samples per second
	MiB        float64 // memory in use; 0 if the model ran but its memory use is unknown
}

// Goal holds the criteria for the choice of a partition. Lambda, from 0 to 1, is the weight of latency relative to
// throughput. A step plus Margin must not take longer than Deadline; both are in seconds. If Deadline is 0, there is no
// deadline.
type Goal struct{ Lambda, Deadline, Margin float64 }

// Partition is a profile and a batch size. Worth is the partition's value, which the DynaP method calls F. Higher is
// better.
type Partition struct {
	Measured
	Worth float64
}

// Partitions returns the possible partitions for a model with the given measurements, best first (the batch-aware
// choice of DynaP). If batch is 0, all batch sizes are considered; otherwise, only the given one is considered. Each
// partition is compared with the base of its profile, which is the partition with the largest batch that fits. The
// value of a partition is the sum of two terms: Lambda times the relative decrease in step time, compared with the
// base, and (1 - Lambda) times the relative increase in throughput. Measurements that do not fit or that miss the
// deadline are ignored. Among partitions of equal value, the smallest profile comes first.
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

// fits reports whether the GPU model has the measurement's profile and whether the profile has enough memory.
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
