package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/node/api"
)

func newJob(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "job ID",
		Short: "Show the slices that a job holds on this node",
		Long: `job lists the slices that a job holds on this node. For each one, it shows the gres/gpu slot, the
GPU, the placement, the memory, the MIG device's UUID, the usage, and the forecast of the job's peak
memory. If the driver has reported Xid errors on these slices, job lists them.`,
		Example: `  caelum job 4711
  srun --jobid 4711 --overlap caelum job 4711     # for the job's owner, from a login node`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			lease, err := ask(g, func(ctx context.Context, c *api.Client) (*api.Lease, error) { return c.Job(ctx, id) })
			if errors.Is(err, errNoAgent) {
				return fmt.Errorf("%w; for a job on another node, run `srun --jobid %d --overlap caelum job %[2]d`",
					err, id)
			}
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), lease)
			}
			return printLease(cmd.OutOrStdout(), lease)
		},
	}
}

func printLease(w io.Writer, l *api.Lease) error {
	fmt.Fprintf(
		w,
		"job %d (%s) of %s, since %s\n",
		l.Job, printable(l.Name), printable(l.User), time.Unix(l.Since, 0).Format(time.DateTime),
	)
	if l.Error != "" {
		fmt.Fprintf(w, "no slice: %s\n", printable(l.Error))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range l.Slices {
		fmt.Fprintf(
			table,
			"  slot %d\tGPU %d\t%s at %d%s\t%d MiB\t%s%s\n",
			s.Slot, s.GPU, s.Profile, s.Start, as(s.AdvertisedAs), s.MemoryMiB, s.UUID, inUse(s.Use)+forecast(s.Use),
		)
	}
	if err := table.Flush(); err != nil || l.Xids == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "  GPU errors: %s\n", xidsText(l.Xids))
	return err
}

// forecast formats the forecast of a slice's peak memory use for the end of a table cell. It returns an empty string if
// there is no forecast.
func forecast(u *api.Use) string {
	switch {
	case u == nil || u.ForecastMiB <= 0:
		return ""
	case u.Exceeds:
		return fmt.Sprintf(", forecast peak %.0f MiB, which exceeds the slice's memory", u.ForecastMiB)
	}
	return fmt.Sprintf(", forecast peak %.0f MiB", u.ForecastMiB)
}
