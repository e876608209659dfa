package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"caelum/internal/node/api"
)

func newStatus(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show the GPUs of this node or of all nodes: instances, jobs and offers",
		Long: `On a node with an agent, status draws each GPU as a row of units. Below each drawing, it lists the
instances, the jobs that hold them, how the slices are used, and the free slices that slurmctld may
allocate to jobs.

If the driver has reported Xid errors for a GPU since the agent started, status shows their number
by code, and the slice and the job of the last one. After a fatal Xid error, the GPU is not managed
until the node reboots (see caelum readmit).

Above the GPUs, status lists the slices that are reserved for the first waiting job. Another job can
use them if it ends before the reservation begins.

A job's usage is shown only to its user, root and SlurmUser. If jobs are private (PrivateData=jobs
in slurm.conf, or an MCS plugin with privatedata), other users see the slices that a job holds, but
not the job itself.

On other hosts, such as login nodes, and with --all, status shows all nodes that Caelum manages.
With NODE, it shows only that node and the jobs on it. In both cases, it needs no agent on this
host, because it reads what the agents publish in slurmctld's node records. It runs scontrol once
and, with NODE, also squeue. The records include neither the UUIDs nor the usage of slices; to see
these, run status on the node.`,
		Example: `  caelum status
  caelum status --all
  caelum status n1
  caelum status --json | jq '.gpus[].instances'
  caelum status --all --json | jq '.nodes[] | {node, offers}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usageError{errors.New("specify either a node or --all")}
			case all || len(args) > 0:
				return printNodes(cmd.Context(), cmd.OutOrStdout(), g, strings.Join(args, ""))
			}
			return statusHere(cmd.Context(), cmd.OutOrStdout(), g)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show all nodes, even on a node with an agent")
	return cmd
}

// statusHere prints the status of this node. If no agent is running on this host and Caelum does not manage the host,
// statusHere prints all nodes.
func statusHere(ctx context.Context, w io.Writer, g *globals) error {
	status, err := ask(g, func(ctx context.Context, c *api.Client) (*api.Status, error) { return c.Status(ctx) })
	if _, missing := os.Stat(api.NewClient(g.runDir).Socket()); err != nil && errors.Is(missing, fs.ErrNotExist) {
		return statusElsewhere(ctx, w, g, err)
	}
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(w, status)
	}
	return printStatus(w, status, time.Now())
}

func printStatus(w io.Writer, s *api.Status, now time.Time) error {
	published := "no offers published yet"
	if s.PublishedAt != 0 {
		published = fmt.Sprintf("offers published %s ago", now.Sub(time.Unix(s.PublishedAt, 0)).Round(time.Second))
	}
	fmt.Fprintf(w, "node %s, %s\n", s.Node, published)
	printNotes(w, s)
	leases := map[uint32]api.Lease{}
	for _, l := range s.Leases {
		leases[l.Job] = l
	}
	for _, g := range s.GPUs {
		if err := printGPUStatus(w, g, leases); err != nil {
			return err
		}
	}
	return nil
}

// printNotes prints notes that apply to the entire node: errors, a closed node, stale profiles, an excess, and a
// reservation.
func printNotes(w io.Writer, s *api.Status) {
	if s.PublishError != "" {
		fmt.Fprintf(w, "cannot publish: %s\n", printable(s.PublishError))
	}
	if s.Closed != "" {
		fmt.Fprintf(w, "no slices are offered, because slurmctld starts no jobs on this node while its state is %s\n",
			printable(s.Closed))
	}
	if len(s.Stale) > 0 {
		fmt.Fprintf(
			w,
			"slurm.conf lists %s, which this node's driver does not report (the driver reports %s): jobs that request "+
				"these slices never start on this node; see `caelum doctor`\n",
			strings.Join(s.Stale, ", "), strings.Join(s.Profiles, ", "),
		)
	}
	if len(s.Excess) > 0 {
		fmt.Fprintf(w, "slurmctld counts as used some slices that no job holds: %s; ", counts(s.Excess))
		if len(s.ExcessShort) > 0 {
			fmt.Fprintf(w, "the agent cannot raise the node's total of gres/mig to compensate for %s, so jobs wait "+
				"even though slices are free; see `caelum doctor`\n", counts(s.ExcessShort))
		} else {
			fmt.Fprintln(w, "the agent has raised the published totals by the same number, "+
				"so only --exclusive jobs may have to wait; see `caelum doctor`")
		}
	}
	if r := s.Reserved; r != nil {
		var reserved []string
		for _, slice := range r.Slices {
			reserved = append(reserved, fmt.Sprintf("%s at %d on GPU %d", slice.Profile, slice.Start, slice.GPU))
		}
		begin := time.Unix(r.At, 0).Format(time.DateTime)
		fmt.Fprintf(w, "reserved for job %d, from %s: %s\n", r.Job, begin, strings.Join(reserved, ", "))
	}
	if s.Deaf != "" {
		fmt.Fprintf(w, "no notifications from the watcher, so jobs wait up to poll_interval longer: %s\n",
			printable(s.Deaf))
	}
	if n := s.SummariesWaiting; n > 0 {
		fmt.Fprintf(w, "slurmdbd has not recorded the usage of %s yet\n", plural(n, "finished run"))
	}
}

// printGPUStatus prints a GPU with its instances and offers. The argument leases maps the ids of the node's jobs to
// their leases.
func printGPUStatus(w io.Writer, g api.GPU, leases map[uint32]api.Lease) error {
	fmt.Fprintf(w, "\nGPU %d  %s\n", g.Index, g.Model)
	if g.Problem != "" {
		fmt.Fprintf(w, "  not managed: %s\n", printable(g.Problem))
		printXids(w, g.Xids)
		held := slices.DeleteFunc(slices.Clone(g.Instances), func(in api.Instance) bool {
			return in.State != api.StateLeased
		})
		return printInstances(w, held, leases)
	}
	fmt.Fprintf(w, "  %s\n", g.Layout)
	if g.Held != "" {
		fmt.Fprintf(w, "  not available as a full GPU: %s\n", printable(g.Held))
	}
	if err := printInstances(w, g.Instances, leases); err != nil {
		return err
	}
	for _, in := range g.Instances {
		if in.Note != "" {
			fmt.Fprintf(w, "  %s at %d: %s\n", in.Profile, in.Start, printable(in.Note))
		}
		if in.Short() {
			fmt.Fprintf(w, "  %s at %d: has %d of %d SMs\n", in.Profile, in.Start, in.SMs, in.MaxSMs)
		}
	}
	if g.Unlisted {
		fmt.Fprintln(w,
			"  the driver does not list processes, so the agent destroys and re-creates idle slices for each job")
	}
	printXids(w, g.Xids)
	_, err := fmt.Fprintf(w, "  on offer: %s\n", offers(g.Offers))
	return err
}

// printInstances prints a table of instances and the jobs that hold them.
func printInstances(w io.Writer, instances []api.Instance, leases map[uint32]api.Lease) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, in := range instances {
		use := holder(in, leases[in.Job])
		fmt.Fprintf(table, "  %s\tat %d%s\t%s\t%s\n", in.Profile, in.Start, as(in.As), in.UUID, use)
	}
	return table.Flush()
}

// holder returns the table cells that describe the job that holds an instance: its id, its user and the usage of the
// slice. If no job holds the instance, the only cell contains the instance's state. The argument lease is the job's
// lease.
func holder(in api.Instance, lease api.Lease) string {
	switch {
	case in.Job == 0 && in.State == api.StatePromised:
		return "starting"
	case in.Job == 0 && in.State == api.StateLeased:
		return "in use"
	case in.State == api.StatePromised:
		return fmt.Sprintf("job %d\tstarting", in.Job)
	case in.Job == 0:
		return in.State
	}
	text := fmt.Sprintf("job %d\t%s", in.Job, printable(lease.User))
	if k := slices.IndexFunc(lease.Slices, func(s api.Slice) bool { return s.UUID == in.UUID }); k >= 0 {
		text += inUse(lease.Slices[k].Use)
	}
	return text
}

// inUse returns the usage of a slice as a table cell that begins with a tab. It returns "" if u is nil, which means
// that the agent has not sampled the slice yet or that the caller is not allowed to see its usage.
func inUse(u *api.Use) string {
	if u == nil {
		return ""
	}
	text := fmt.Sprintf("\t%.0f MiB in use, peak %.0f MiB", u.MemoryMiB, u.PeakMiB)
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

// printable replaces each unprintable character with "?", so that names chosen by users cannot control the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// counts formats the number of slices of each profile, sorted by name, for example "1g.5gb x2, 7g.40gb x1".
func counts(of map[string]int) string {
	var names []string
	for _, profile := range slices.Sorted(maps.Keys(of)) {
		names = append(names, fmt.Sprintf("%s x%d", profile, of[profile]))
	}
	return strings.Join(names, ", ")
}

// offers formats placements as profiles with their counts, for example "1g.5gb x2, 2g.10gb". For an empty list, it
// returns "nothing".
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

// as returns " (as NAME)" if slurmctld counts a slice as NAME, an equivalent profile of another GPU model. It returns
// "" if name is empty.
func as(name string) string {
	if name == "" {
		return ""
	}
	return " (as " + name + ")"
}
