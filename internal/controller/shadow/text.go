package shadow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Text formats the pass, without its time, for an administrator.
func (p Pass) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s, if Caelum managed it\n", p.Node)
	if p.Closed != "" {
		fmt.Fprintf(&b, "  slurmctld starts no jobs on the node: %s\n", p.Closed)
	}
	for k, g := range p.GPUs {
		fmt.Fprintf(&b, "GPU %d  %s", g.Index, g.Name)
		if g.Now != "" {
			fmt.Fprintf(&b, "  (now: %s)", g.Now)
		}
		b.WriteString("\n")
		if g.Layout != "" {
			fmt.Fprintf(&b, "  %s\n", g.Layout)
		}
		p.on(&b, k, "runs now", p.Running)
		p.on(&b, k, "would start now", p.Starts)
	}
	for _, id := range p.NoRoom {
		fmt.Fprintf(&b, "job %d is running, but its slices would not fit on the node\n", id)
	}
	fmt.Fprintf(&b, "free for further jobs: %s\n", counts(p.Offers))
	fmt.Fprintf(&b, "jobs that would wait: %d\n", p.Waiting)
	if p.First != nil {
		fmt.Fprintf(&b, "reason for job %d: %s\n", p.First.Job, printable(p.First.Text))
	}
	return b.String()
}

// printable replaces the characters that could control a terminal. Some of the words in an explanation are chosen by
// users.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// on writes a line for each slice that a job holds on GPU k.
func (p Pass) on(b *strings.Builder, k int, verb string, jobs []Placed) {
	for _, j := range jobs {
		for _, s := range j.Slices {
			if s.GPU == k {
				fmt.Fprintf(b, "  %-8s at %d  job %d of user %d %s\n", s.Profile, s.Start, j.Job, j.UID, verb)
			}
		}
	}
}

// counts formats the counts of profiles, for example "1g.5gb x2, 3g.20gb".
func counts(offers map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(offers)) {
		if n := offers[name]; n > 1 {
			name = fmt.Sprintf("%s x%d", name, n)
		}
		all = append(all, name)
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}
