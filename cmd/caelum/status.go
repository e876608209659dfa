package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"caelum/internal/api"
)

func newStatus(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show each GPU of this node: who holds what, and what is on offer",
		Long: `status draws each GPU as its placement units, lists the instances on it with the jobs that hold them and what these have in use, and the free
slices that slurmctld may give out now. What is kept for the first job that has to wait stands above them: others may have it if they end before.
What other users' jobs have in use is shown to root only, and nothing of these jobs where slurm.conf has PrivateData=jobs.`,
		Example: `  caelum status
  caelum status --json | jq '.gpus[].instances'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := ask(
				g,
				func(ctx context.Context, c *api.Client) (*api.Status, error) { return c.Status(ctx) },
			)
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), status)
			}
			return printStatus(cmd.OutOrStdout(), status, time.Now())
		},
	}
}

func printStatus(w io.Writer, s *api.Status, now time.Time) error {
	fmt.Fprintf(w, "node %s, ", s.Node)
	switch {
	case s.PublishedAt == 0:
		fmt.Fprint(w, "nothing published yet")
	default:
		fmt.Fprintf(w, "offers published %s ago", now.Sub(time.Unix(s.PublishedAt, 0)).Round(time.Second))
	}
	fmt.Fprintln(w)
	if s.PublishError != "" {
		fmt.Fprintf(w, "cannot publish: %s\n", printable(s.PublishError))
	}
	if s.Closed != "" {
		fmt.Fprintf(w, "slurmctld starts nothing here, so nothing is on offer: the node is %s\n", printable(s.Closed))
	}
	if len(s.Stale) > 0 {
		fmt.Fprintf(
			w,
			"slurm.conf has %s, which this node's driver does not report (it has %s): jobs that ask for that never start here; see `caelum doctor`\n",
			strings.Join(s.Stale, ", "),
			strings.Join(s.Profiles, ", "),
		)
	}
	if len(s.Excess) > 0 {
		fmt.Fprintf(w, "slurmctld counts slices as used that no job has: %s; ", counts(s.Excess))
		if len(s.ExcessShort) > 0 {
			fmt.Fprintf(w, "the node's total of gres/mig has no room for %s, "+
				"so jobs wait although slices are free; see `caelum doctor`\n", counts(s.ExcessShort))
		} else {
			fmt.Fprintln(w, "the published totals are raised by as many, so only --exclusive jobs may wait; see `caelum doctor`")
		}
	}
	if r := s.Reserved; r != nil {
		var kept []string
		for _, slice := range r.Slices {
			kept = append(kept, fmt.Sprintf("%s at %d of GPU %d", slice.Profile, slice.Start, slice.GPU))
		}
		fmt.Fprintf(
			w,
			"kept for job %d, from %s: %s\n",
			r.Job,
			time.Unix(r.At, 0).Format(time.DateTime),
			strings.Join(kept, ", "),
		)
	}
	if n := s.SummariesWaiting; n > 0 {
		fmt.Fprintf(w, "slurmdbd has not got what jobs used of %d runs that have ended\n", n)
	}
	users := map[uint32]string{}
	uses := map[string]*api.Use{}
	for _, l := range s.Leases {
		users[l.Job] = l.User
		for _, slice := range l.Slices {
			uses[slice.UUID] = slice.Use
		}
	}
	for _, g := range s.GPUs {
		fmt.Fprintf(w, "\nGPU %d  %s\n", g.Index, g.Model)
		if g.Problem != "" {
			fmt.Fprintf(w, "  not managed: %s\n", printable(g.Problem))
			continue
		}
		fmt.Fprintf(w, "  %s\n", g.Layout)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, in := range g.Instances {
			who := in.State
			switch {
			case in.Job == 0 && in.State == "promised":
				who = "starting"
			case in.Job == 0 && in.State == "leased":
				who = "in use"
			case in.State == "promised":
				who = fmt.Sprintf("job %d\tstarting", in.Job)
			case in.Job != 0:
				who = fmt.Sprintf("job %d\t%s", in.Job, printable(users[in.Job])) + inUse(uses[in.UUID])
			}
			fmt.Fprintf(table, "  %s\tat %d%s\t%s\t%s\n", in.Profile, in.Start, as(in.As), in.UUID, who)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, in := range g.Instances {
			if in.Note != "" {
				fmt.Fprintf(w, "  %s at %d: %s\n", in.Profile, in.Start, printable(in.Note))
			}
		}
		if g.Unlisted {
			fmt.Fprintln(
				w,
				"  the driver does not list processes: idle slices are destroyed and made again for each job",
			)
		}
		fmt.Fprintf(w, "  on offer: %s\n", offers(g.Offers))
	}
	return nil
}

// inUse is a further cell of a table, empty if nobody has looked.
func inUse(u *api.Use) string {
	if u == nil {
		return ""
	}
	text := fmt.Sprintf("\t%.0f MiB in use, %.0f at most", u.MemoryMiB, u.PeakMiB)
	if u.Util >= 0 {
		text += fmt.Sprintf(", %.0f%% busy", 100*u.Util)
	}
	switch u.Processes {
	case 0:
		text += ", no process"
	case -1, 1:
	default:
		text += fmt.Sprintf(", %d processes", u.Processes)
	}
	return text
}

// printable keeps what users have named from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// counts lists profiles with their counts, by name.
func counts(of map[string]int) string {
	var names []string
	for _, profile := range slices.Sorted(maps.Keys(of)) {
		names = append(names, fmt.Sprintf("%s x%d", profile, of[profile]))
	}
	return strings.Join(names, ", ")
}

// offers lists placements as profile x count.
func offers(list []api.Placement) string {
	if len(list) == 0 {
		return "nothing"
	}
	var names []string
	counts := map[string]int{}
	for _, p := range list {
		name := p.Profile + as(p.As)
		if counts[name] == 0 {
			names = append(names, name)
		}
		counts[name]++
	}
	for i, n := range names {
		if counts[n] > 1 {
			names[i] = n + " x" + strconv.Itoa(counts[n])
		}
	}
	return strings.Join(names, ", ")
}

// as says what slurmctld counts a slice as, where that is another GPU model's profile.
func as(name string) string {
	if name == "" {
		return ""
	}
	return " (as " + name + ")"
}
