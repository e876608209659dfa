package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

func newReadmit(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "readmit GPU",
		Short: "Offer a GPU again that was withdrawn after a fatal Xid error and has been reset",
		Long: `After a fatal Xid error, for example an uncontained memory error, the agent no longer offers slices
on the GPU until the node reboots. If you reset the GPU without a reboot, readmit makes the agent
offer slices on it again. Drain the node, wait until its jobs have ended, stop the agent and all
monitoring programs, reset the GPU, start them again, and run readmit. GPU is the index that caelum
status shows. Only root may run readmit.`,
		Example: `  systemctl stop caelumd
  nvidia-smi --gpu-reset -i 1
  systemctl start caelumd
  caelum readmit 1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			index, err := strconv.Atoi(args[0])
			if err != nil || index < 0 {
				return usageError{errors.New("the GPU must be an index from caelum status")}
			}
			_, err = askWithin(g, adoptTimeout, func(ctx context.Context, c *api.Client) (struct{}, error) {
				return struct{}{}, c.Readmit(ctx, index)
			})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "the agent manages GPU %d again\n", index)
			}
			return err
		},
	}
}

// printXids prints the Xid errors of a GPU, one line per code.
func printXids(w io.Writer, xids []api.XidCount) {
	for _, x := range xids {
		fmt.Fprintf(w, "  %s x%d, last at %s", printable(x.Text), x.Count, time.Unix(x.At, 0).Format(time.DateTime))
		if x.On != "" {
			fmt.Fprintf(w, " on %s", printable(x.On))
		}
		if x.Job != 0 {
			fmt.Fprintf(w, ", job %d", x.Job)
		}
		fmt.Fprintln(w)
	}
}

// xidsText formats the value of predict.Run.Xids, for example "Xid 13 (graphics engine exception) x3, Xid 99".
func xidsText(xids string) string {
	var parts []string
	codes, counts := predict.ParseXids(xids)
	for k, code := range codes {
		text := gpu.XidText(code)
		if counts[k] > 1 {
			text += fmt.Sprintf(" x%d", counts[k])
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
