package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"caelum/internal/core/place"
)

// each calls the function do for every combination of queue, source of the expected ends, and load.
func (o options) each(do func(c cluster, load float64) error) error {
	for _, queue := range o.queues {
		for _, ends := range o.ends {
			for _, load := range o.loads {
				c := o.cluster
				c.queue, c.ends = queue, ends
				if err := do(c, load); err != nil {
					return fmt.Errorf("%s, %s, load %v: %w", queue, ends, load, err)
				}
			}
		}
	}
	return nil
}

// over simulates shared nodes with every seed.
func (o options) over(c cluster, load float64) (outcome, error) {
	all, err := parallel(o.workers, len(o.seeds), func(k int) (outcome, error) {
		return c.shared(o.draw(c, load, o.seeds[k]), o.seeds[k])
	})
	return total(all), err
}

// split prints the waits with the best split for the tuning seeds, and the waits on shared nodes for several values of
// whole_share.
func split(w io.Writer, o options) error {
	row(w, "queue", "load", "nodes", "all", "several GPUs", "slices", "ratio: all", "several GPUs", "slices",
		"longest: several GPUs", "slices", "switches per 1,000 jobs")
	fmt.Fprintln(w, strings.Repeat("|---", 12)+"|")
	return o.each(func(c cluster, load float64) error {
		best, err := o.bestSplit(c, load)
		if err != nil {
			return err
		}
		all, err := parallel(o.workers, len(o.seeds), func(k int) (outcome, error) {
			return c.split(o.draw(c, load, o.seeds[k]), best, o.seeds[k])
		})
		if err != nil {
			return err
		}
		a := total(all)
		line := func(name string, b outcome) {
			row(w, c.queue, fmt.Sprint(load), name,
				seconds(b.mean()), seconds(b.multi.mean()), seconds(b.slices.mean()),
				ratio(b.mean(), a.mean()), ratio(b.multi.mean(), a.multi.mean()),
				ratio(b.slices.mean(), a.slices.mean()),
				seconds(b.multi.longest), seconds(b.slices.longest), b.switches())
		}
		line(fmt.Sprintf("split %d + %d", best, c.nodes-best), a)
		for _, c.share = range o.shares {
			b, err := o.over(c, load)
			if err != nil {
				return err
			}
			line(fmt.Sprintf("shared, whole_share %v", c.share), b)
		}
		return nil
	})
}

// switches returns the number of MIG mode switches per 1,000 jobs.
func (o outcome) switches() string {
	return fmt.Sprintf("%.0f", 1000*float64(o.switched)/float64(o.multi.jobs+o.slices.jobs))
}

// quota prints the waits on shared nodes for several values of whole_share.
func quota(w io.Writer, o options) error {
	return variants(w, o, "whole_share", len(o.shares), func(c *cluster, k int) (string, error) {
		c.share = o.shares[k]
		return fmt.Sprint(c.share), nil
	})
}

// policies prints the waits on shared nodes for several placement policies.
func policies(w io.Writer, o options) error {
	return variants(w, o, "policy", len(o.policies), func(c *cluster, k int) (name string, err error) {
		c.policy, err = place.ByName(o.policies[k])
		return o.policies[k], err
	})
}

// variants prints the waits on shared nodes for n variants of the cluster. The function set selects the k-th variant
// and returns its name.
func variants(w io.Writer, o options, title string, n int, set func(c *cluster, k int) (string, error)) error {
	row(w, "queue", "ends", "load", title, "all", "several GPUs", "slices", "longest: several GPUs", "slices",
		"switches per 1,000 jobs")
	fmt.Fprintln(w, strings.Repeat("|---", 10)+"|")
	return o.each(func(c cluster, load float64) error {
		for k := range n {
			name, err := set(&c, k)
			if err != nil {
				return err
			}
			r, err := o.over(c, load)
			if err != nil {
				return err
			}
			row(w, c.queue, c.ends, fmt.Sprint(load), name, seconds(r.mean()), seconds(r.multi.mean()),
				seconds(r.slices.mean()), seconds(r.multi.longest), seconds(r.slices.longest), r.switches())
		}
		return nil
	})
}

func row(w io.Writer, cells ...string) { fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |") }

// seconds formats a time in seconds, with a comma as the thousands separator.
func seconds(x float64) string {
	n := int64(math.Round(x))
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", seconds(float64(n/1000)), n%1000)
}

// ratio formats a ratio with two decimal places.
func ratio(a, b float64) string { return fmt.Sprintf("%.2f", a/b) }
