package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"caelum/contrib/lab/seeds"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "learn:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if len(args) == 0 {
		return errors.New("no command given: use population, variants, args, first, miso, runtimes, forecast or grow")
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	usual := "101-105"
	if args[0] == "forecast" {
		usual = "101-120"
	}
	list := f.String("seeds", usual, "seeds of the populations or runs")
	tune := f.Bool("tune", false, "compare windows, quantiles and margins for Caelum's rules instead of comparing "+
		"the rules")
	bounds := f.Bool("bounds", false, "forecast: print what no rule can foresee instead of comparing the rules")
	devcluster := f.Int("devcluster", 0, "grow: simulate the trace of devcluster-bench -grow with this number of jobs")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	drawn, err := numbers(*list)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "population" && *tune:
		return tunePopulation(w, drawn)
	case args[0] == "population":
		return comparePopulation(w, drawn)
	case args[0] == "variants":
		return compareVariants(w, drawn)
	case args[0] == "first":
		return compareFirsts(w, drawn)
	case args[0] == "args":
		return compareArgs(w, drawn)
	case args[0] == "miso" && f.NArg() == 1:
		return compareMISO(w, f.Arg(0))
	case args[0] == "miso":
		return errors.New("miso: the path of a100_40gb_mig_step_time.csv is missing; specify the path as an argument")
	case args[0] == "forecast" && *bounds:
		return printBounds(w, drawn)
	case args[0] == "forecast":
		return compareForecasts(w, drawn)
	case args[0] == "grow" && *devcluster > 0:
		return compareTrace(w, *devcluster, drawn)
	case args[0] == "grow":
		return compareGrow(w, drawn)
	case args[0] == "runtimes":
		return compareRuntimes(w, drawn)
	}
	return fmt.Errorf("unknown command %s: use population, variants, args, miso, runtimes, forecast or grow", args[0])
}

// numbers parses a list of seeds and ranges of seeds.
func numbers(list string) (all []uint64, err error) {
	for _, word := range strings.Split(list, ",") {
		some, err := seeds.Parse(word)
		if err != nil {
			return nil, fmt.Errorf("-seeds %s: specify numbers or ranges, as in 101,103-105", list)
		}
		all = append(all, some...)
	}
	return all, nil
}

// table prints a Markdown table. In head and in the formats of the rows, columns are separated by a comma and a space.
func table(w io.Writer, head string, rows func(row func(format string, values ...any))) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| "+strings.ReplaceAll(head, ", ", "\t| ")+"\t|")
	fmt.Fprintln(t, strings.Repeat("|---\t", strings.Count(head, ", ")+1)+"|")
	rows(func(format string, values ...any) {
		fmt.Fprintf(t, "| "+strings.ReplaceAll(format, ", ", "\t| ")+"\t|\n", values...)
	})
	fmt.Fprintln(t)
	return t.Flush()
}
