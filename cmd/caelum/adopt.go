package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/node/api"
)

// adoptTimeout is the timeout for a call to the agent's adopt method. It is longer than callTimeout because the agent
// has to call slurmctld and wait for driver calls that are in progress.
const adoptTimeout = time.Minute

func newAdopt(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "adopt (--all | UUID...)",
		Short: "Convert foreign instances to idle instances, for example after the ledger was lost",
		Long: `adopt converts foreign instances on this node to idle instances, which the agent can then lease to
jobs or destroy to make room for others.

An instance stays foreign while a process is using it or has its device files open, or if its compute
instance does not span the whole GPU instance; adopt then prints the reason. While a job with GPUs but
no lease is running on the node, no instances are converted. Only root may run adopt.`,
		Example: `  caelum status                                          # shows the foreign instances
  caelum adopt MIG-245f354f-cce2-5f35-9789-eedcaa3128c2
  caelum adopt --all`,
		Args: func(_ *cobra.Command, uuids []string) error {
			if all == (len(uuids) > 0) {
				return errors.New("specify the UUIDs of instances, or --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, uuids []string) error {
			return runAdopt(cmd.OutOrStdout(), g, api.AdoptRequest{UUIDs: uuids})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false,
		"adopt every foreign instance, and destroy GPU instances without compute instances")
	return cmd
}

func runAdopt(w io.Writer, g *globals, req api.AdoptRequest) error {
	list, err := askWithin(
		g,
		adoptTimeout,
		func(ctx context.Context, c *api.Client) ([]api.Adoption, error) { return c.Adopt(ctx, req) },
	)
	if err != nil {
		return err
	}
	if g.json {
		err = printJSON(w, list)
	} else {
		err = printAdoptions(w, list)
	}
	refused := 0
	for _, d := range list {
		if d.Reason != "" {
			refused++
		}
	}
	if err == nil && refused > 0 {
		err = fmt.Errorf("couldn't adopt %s", plural(refused, "instance"))
	}
	return err
}

func printAdoptions(w io.Writer, list []api.Adoption) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "there are no foreign instances")
		return err
	}
	for _, d := range list {
		name := printable(d.UUID)
		if d.Profile != "" {
			name = fmt.Sprintf("%s at %d on GPU %d, %s", d.Profile, d.Start, d.GPU, name)
		}
		verdict := "adopted"
		switch {
		case d.Reason != "":
			verdict = "not adopted: " + printable(d.Reason)
		case d.State == "":
			verdict = "destroyed, because it had no compute instance"
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", name, verdict); err != nil {
			return err
		}
	}
	return nil
}
