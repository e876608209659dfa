package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// licenses reads the number of free licences of each kind in the cluster, if a waiting job requests any.
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

// parseLicenses reads `scontrol show licenses`: key=value words, which only an administrator writes, with a licence's
// name first.
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

// LacksLicense returns the first licence of which fewer are free than the job requests, or "" if there is none.
// slurmctld reserves nothing for such a job. It sets the reason Licenses only when it evaluates the job; a job behind
// another one waits with the reason Priority (job_scheduler.c, 22.05.8). For a job that accepts alternatives (|), the
// result is empty, and slurmctld decides.
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
