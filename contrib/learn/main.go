package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "learn:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if len(args) == 0 {
		return errors.New("no command given: use population, variants, miso or runtimes")
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	list := f.String("seeds", "101,102,103,104,105", "seeds of the populations")
	tune := f.Bool("tune", false, "compare windows, quantiles and margins of Caelum's rules instead of the rules")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	seeds, err := numbers(*list)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "population" && *tune:
		return tunePopulation(w, seeds)
	case args[0] == "population":
		return comparePopulation(w, seeds)
	case args[0] == "variants":
		return compareVariants(w, seeds)
	case args[0] == "miso" && f.NArg() == 1:
		return compareMISO(w, f.Arg(0))
	case args[0] == "miso":
		return errors.New("miso: the path of a100_40gb_mig_step_time.csv is missing; specify the path as an argument")
	case args[0] == "runtimes":
		return compareRuntimes(w, seeds)
	}
	return fmt.Errorf("unknown command %s: use population, variants, miso or runtimes", args[0])
}

func numbers(list string) (all []uint64, err error) {
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("-seeds %s: specify numbers, as in 101,102", list)
		}
		all = append(all, n)
	}
	return all, nil
}

// table prints a Markdown table. The columns in head and in the formats of the rows are separated by a comma and a
// space.
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
