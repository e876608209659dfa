package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"caelum/contrib/lab/seeds"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

// options holds the arguments of a command.
type options struct {
	seeds []uint64
	path  string // the directory that contains MISO's files
}

// command describes one of the commands. Each command prints one or more tables.
type command struct {
	seeds string // default
	path  bool   // the command requires PATH
	print func(io.Writer, options) error
}

var commands = map[string]command{
	"rates":   {"101-120", true, rates},
	"speeds":  {"101-120", false, speeds},
	"learned": {"101-120", true, learned},
	"long":    {"101-110", true, long},
	"equal":   {"101-110", false, equal},
}

func run(args []string, w io.Writer) error {
	if len(args) == 0 || commands[args[0]].print == nil {
		return fmt.Errorf("specify one of the commands rates, speeds, learned, long and equal")
	}
	c := commands[args[0]]
	f := flag.NewFlagSet("sizing "+args[0], flag.ContinueOnError)
	reported := f.String("seeds", c.seeds, "first and last seed for the workloads")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if c.path != (f.NArg() == 1) {
		return fmt.Errorf("rates, learned and long require one argument, the folder with MISO's files; " +
			"the other commands accept no argument")
	}
	o := options{path: f.Arg(0)}
	var err error
	if o.seeds, err = seeds.Parse(*reported); err != nil {
		return fmt.Errorf("-seeds: %w", err)
	}
	return c.print(w, o)
}
