package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// licenses returns the number of free licences of each kind in the cluster. It runs scontrol only if a waiting job
// requests licences.
func (c *Client) licenses(ctx context.Context, waiting []Waiting) (map[string]int, error) {
	if !slices.ContainsFunc(waiting, func(w Waiting) bool { return w.Licenses != "" }) {
		return nil, nil
	}
	out, err := c.run(ctx, nil, c.scontrol, "show", "licenses")
	if err != nil {
		return nil, err
	}
	return parseLicenses(out)
}

// parseLicenses parses the output of `scontrol show licenses`. The output consists of key=value pairs. Only
// administrators can change these pairs. Each record begins with the licence's name.
func parseLicenses(out string) (map[string]int, error) {
	free := map[string]int{}
	name := ""
	for word := range strings.FieldsSeq(out) {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "LicenseName":
			name = value
		case "Free":
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, fmt.Errorf("licence %.40q: %w", name, err)
			}
			free[name] += n // since 25.05, a hierarchical licence has one record for each set of nodes
		}
	}
	return free, nil
}
