package main

import (
	"fmt"
	"io"

	"caelum/internal/core/predict"
)

// compareVariants compares the rules on the variants, and several values of peak_quantile on populations that differ
// only in the scatter of the memory use.
func compareVariants(w io.Writer, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	rules := append(highest(), known(), caelum())
	if err := variantTable(w, n, variants, rules, seeds); err != nil {
		return err
	}
	scattered := append([]population{standard}, variants[len(variants)-2:]...)
	return variantTable(w, n, scattered, quantiles(), seeds)
}

// quantiles returns variants of Caelum's rule that differ in the value of peak_quantile.
func quantiles() []rule {
	all := []rule{caelum()}
	for _, q := range []float64{0.8, 0.9, 0.95, 0.99} {
		site := predict.DefaultSite
		site.PeakQuantile = q
		all = append(all, learned(fmt.Sprintf("Caelum, peak_quantile: %g", q), site))
	}
	return all
}

// variantTable prints four figures for each rule and population: the fraction of repeats on the tightest profile, the
// number of runs out of memory as a fraction of the repeats, the allocated fraction of a GPU, and the fraction of
// repeats that run out of memory in all tries.
func variantTable(w io.Writer, n node, populations []population, rules []rule, seeds []uint64) error {
	head := "in the tightest profile / out of memory / allocated share of a GPU / in all tries"
	for _, p := range populations {
		head += ", " + p.name
	}
	return table(w, head, func(row func(string, ...any)) {
		for _, r := range rules {
			format, values := "%s", []any{r.name}
			for _, p := range populations {
				s, _ := p.simulateAll(n, r, seeds)
				format += ", %.1f%% / %.2f%% / %.1f%% / %.2f%%"
				values = append(values, s.of(s.tight), s.of(s.killed), 100*s.given/float64(s.repeats)/n.memory(n.whole),
					s.of(s.never))
			}
			row(format, values...)
		}
	})
}
