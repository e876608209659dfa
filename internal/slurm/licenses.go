package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// licenses reads how many of each of the cluster's licences no job has, if a waiting job asks for any.
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

// parseLicenses reads `scontrol show licenses`: an admin's key=value words, a licence's name first.
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
			free[name] = n
		}
	}
	return free, nil
}

// LacksLicense returns the first licence of which jobs have left fewer than the job asks for; empty if there is none.
// slurmctld keeps nothing for such a job, and marks it with the reason Licenses only once it comes to it in its
// queue: a job behind another one waits with the reason Priority (job_scheduler.c, 22.05.8). A job that accepts
// alternatives (|) is left to slurmctld.
func (q Queue) LacksLicense(w Waiting) string {
	if strings.Contains(w.Licenses, "|") {
		return ""
	}
	for _, item := range list(w.Licenses) {
		name, count, counted := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if !counted {
			n = 1
		} else if err != nil {
			continue
		}
		if free, known := q.Licenses[name]; known && free < n {
			return name
		}
	}
	return ""
}
