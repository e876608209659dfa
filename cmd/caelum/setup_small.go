package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"caelum/internal/cli/setup"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// observedPath is the file that `caelumd observe` writes by default.
const observedPath = "/var/lib/caelum/observed.jsonl"

// printStartSmall prints how many of the runs recorded on this host would fit into the smallest slice, which could be
// the default for unknown jobs.
func printStartSmall(w io.Writer, r setup.Request) {
	var profile string
	var memory float64
	_, at, _ := strings.Cut(r.Sections["decisions"], "\nprofile ") // the profiles are ordered from small to large
	if _, err := fmt.Sscan(at, &profile, &memory); err != nil {
		return
	}
	runs, fitting := 0, 0
	if f, err := repo.OpenRuns(observedPath); err == nil {
		runs, fitting, _ = fit(f, memory)
		f.Close()
	}
	if runs == 0 && os.Geteuid() == 0 { // another process reads the repository as its owner
		export := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"caelum", "repo", "export"}}
		if out, err := export.StdoutPipe(); errors.Join(err, export.Start()) == nil {
			runs, fitting, _ = fit(out, memory)
			out.Close()
			export.Wait()
		}
	}
	text := fmt.Sprintf("To see how many would fit into a %s, let `caelumd observe` run on the nodes for some days, "+
		"and run `caelum repo import` with its files here.", profile)
	if runs > 0 {
		text = fmt.Sprintf("Of %s on one GPU, %d would fit into a %s. With `default %[3]s` in the decision table, "+
			"scripts start there, and run again on a larger slice if they do not fit. `caelum simulate --observed` "+
			"computes the waits.", plural(runs, "recorded run"), fitting, profile)
	}
	fmt.Fprintln(w, wrapped("Unknown scripts start on a whole GPU. "+text))
}

// fit returns the number of measured runs on one GPU, and how many of them need at most the given memory in MiB. After
// an error, it returns the runs before the invalid line.
func fit(from io.Reader, memory float64) (runs, fitting int, err error) {
	err = repo.EachRun(from, func(n repo.Observed) error {
		if n.Samples > 0 && max(n.GPUs*n.Nodes, n.Slices) == 1 {
			if runs++; n.PeakMiB*(1+predict.DefaultSite.Margin) <= memory {
				fitting++
			}
		}
		return nil
	})
	return runs, fitting, err
}
