package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/cli/jobreport"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// printReport prints the report on one job, array or het job.
func printReport(w io.Writer, r jobreport.Report) {
	if r.Kind == jobreport.Array {
		printTasks(w, r)
	} else {
		for k, j := range r.Jobs {
			if k > 0 {
				fmt.Fprintln(w)
			}
			printOne(w, j)
		}
	}
	if len(r.Jobs) > 1 {
		fmt.Fprintln(w)
		line(w, "GPU-hours", "in total %s", gpuHours(r.GPUHours, r.SliceHours, r.Unweighted))
	}
	fmt.Fprintln(w)
	for _, a := range r.Advice {
		if a.Job != "" {
			a.Text = a.Job + ": " + a.Text
		}
		fmt.Fprintln(w, wrapped(printable(a.Text)))
		for _, p := range a.Paste {
			fmt.Fprintf(w, "    %s\n", printable(p))
		}
	}
}

// wrapped breaks text into lines of at most 80 characters.
func wrapped(text string) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+1+len(word) > 80:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}

// line prints a line of a report: a label and its value.
func line(w io.Writer, name, format string, args ...any) {
	fmt.Fprintf(w, "  %-12s  %s\n", name, printable(fmt.Sprintf(format, args...)))
}

// printOne prints the resources that one job requested, was allocated and used.
func printOne(w io.Writer, j jobreport.Job) {
	fmt.Fprintf(w, "job %s (%s) of %s, account %s: %s\n", printable(j.ID), printable(orDash(j.Name)),
		printable(j.User), printable(j.Account), stateText(j))
	line(w, "partition", "%s", j.Partition)
	if len(j.Nodes) > 0 {
		line(w, "nodes", "%s", nodesText(j.Nodes))
	}
	line(w, "waited", "%s", jobreport.Clock(int(j.Wait)))
	if j.Start > 0 {
		text := jobreport.Clock(int(j.Run))
		if j.Limit > 0 {
			text = bar(float64(j.Run)/float64(j.Limit)) + "  " + text + " of " + jobreport.Clock(int(j.Limit))
		}
		line(w, "ran", "%s", text)
	}
	if j.GPU {
		line(w, "requested", "%s", requestText(j))
	}
	for _, s := range j.Slices {
		printSlice(w, s, len(j.Slices) > 1)
	}
	printEarlier(w, j)
	if j.GPU && j.Start > 0 {
		line(w, "GPU-hours", "%s", gpuHours(j.GPUHours, j.SliceHours, j.Unweighted))
	}
}

// stateText returns the job's state and, if the job failed, its exit status.
func stateText(j jobreport.Job) string {
	if j.State == "FAILED" {
		return fmt.Sprintf("FAILED with exit status %d", j.Exit)
	}
	return printable(j.State)
}

// nodesText returns the names of the nodes or, if there are many, the first few names and the number of remaining
// nodes.
func nodesText(nodes []string) string {
	const most = 4
	text := strings.Join(nodes[:min(len(nodes), most)], ", ")
	if n := len(nodes) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func requestText(j jobreport.Job) string {
	switch {
	case j.Requested == "" && j.Chosen == "":
		return plural(j.GPUs, "GPU")
	case j.Chosen == "":
		return j.Requested
	case j.Requested == "" || j.Requested == j.Chosen:
		return j.Chosen + ", chosen by Caelum"
	}
	return fmt.Sprintf("%s (Caelum chose %s)", j.Requested, j.Chosen)
}

// printSlice prints the slices of one profile on one node and how they were used. If several is true, the job also held
// other slices.
func printSlice(w io.Writer, s jobreport.Slice, several bool) {
	got := s.Profile
	if s.Profile == mig.Full {
		got = "a full GPU"
	}
	if s.Count > 1 {
		got += fmt.Sprintf(" x%d", s.Count)
	}
	if several {
		got += " on " + s.Node
	}
	if s.MemoryMiB > 0 {
		got += fmt.Sprintf(", %.0f MiB", s.MemoryMiB)
	}
	line(w, "got", "%s", got)
	if s.Xids != "" {
		line(w, "GPU errors", "%s", xidsText(s.Xids))
	}
	if !s.Measured {
		line(w, "GPU memory", "not measured")
		return
	}
	peak := fmt.Sprintf("peak %.0f MiB", s.PeakMiB)
	if s.MemoryMiB > 0 {
		peak = bar(s.PeakMiB/s.MemoryMiB) + "  " + peak + fmt.Sprintf(" of %.0f MiB", s.MemoryMiB)
	}
	line(w, "GPU memory", "%s", peak)
	if s.Busy == nil {
		line(w, "SMs busy", "not measured on %s", strings.ToUpper(s.Model))
		return
	}
	line(w, "SMs busy", "%s", bar(*s.Busy))
}

// printEarlier prints the earlier runs of a requeued job, and why the job ran again.
func printEarlier(w io.Writer, j jobreport.Job) {
	for k, e := range j.Earlier {
		text := e.State
		switch e.End {
		case predict.EndOOM:
			text = "the GPU memory ran out"
		case predict.EndForeseen:
			text = "the GPU memory would have run out"
		}
		if e.Profile != "" {
			text += " on " + e.Profile
		}
		if e.PeakMiB > 0 {
			text += fmt.Sprintf(", peak %.0f MiB", e.PeakMiB)
		}
		line(w, fmt.Sprintf("run %d", k+1), "%s, %s", jobreport.Clock(int(e.Run)), text)
	}
	grew := j.Growths
	if slices.ContainsFunc(j.Earlier, func(e jobreport.Earlier) bool { return e.End != "" }) {
		grew = nil // the lines above already show the growths
	}
	for _, g := range grew {
		why := "GPU memory ran out, peak"
		if g.Cause == predict.Foreseen {
			why = "forecast of the peak:"
		}
		line(w, "grew", "%s was too small (%s %.0f MiB)", g.Profile, why, g.MiB)
	}
	if j.Unavailable > 0 {
		line(w, "requeued", "%s, because the slice was not available", plural(j.Unavailable, "time"))
	}
}

// gpuHours formats the GPU-hours and the slice-hours, both with two decimals.
func gpuHours(gpu, slice float64, unweighted bool) string {
	if unweighted {
		return fmt.Sprintf("unknown (%.2f slice-hours), because the record in slurmdbd does not contain the GPU "+
			"model", slice)
	}
	return fmt.Sprintf("%.2f (%.2f slice-hours)", gpu, slice)
}

// barWidth is the number of characters between the brackets of a bar.
const barWidth = 20

// bar returns a bar that represents a fraction from 0 to 1, followed by the percentage. A fraction above 1 fills the
// bar.
func bar(share float64) string {
	full := min(max(int(share*barWidth+0.5), 0), barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*share)
}

// printTasks summarizes the tasks of an array.
func printTasks(w io.Writer, r jobreport.Report) {
	last := r.Jobs[len(r.Jobs)-1]
	fmt.Fprintf(w, "array %s (%s) of %s, account %s\n", printable(r.ID), printable(orDash(last.Name)),
		printable(last.User), printable(last.Account))
	line(w, "partition", "%s", last.Partition)
	var states []string
	tasks := map[string][]string{} // the ids by state
	var ran []jobreport.Job
	for _, j := range r.Jobs {
		if tasks[j.State] == nil {
			states = append(states, j.State)
		}
		tasks[j.State] = append(tasks[j.State], j.ID)
		if j.Start > 0 {
			ran = append(ran, j)
		}
	}
	for _, state := range states {
		line(w, "tasks", "%s: %s", state, tasksText(tasks[state]))
	}
	if len(ran) == 0 {
		return
	}
	slices.SortStableFunc(ran, func(a, b jobreport.Job) int { return cmp.Compare(a.Run, b.Run) })
	text := jobreport.Clock(int(ran[0].Run)) + " to " + jobreport.Clock(int(ran[len(ran)-1].Run))
	if last.Limit > 0 {
		text += " of " + jobreport.Clock(int(last.Limit))
	}
	line(w, "ran", "%s", text)
	if last.GPU {
		line(w, "requested", "%s", requestText(last))
	}
	if j, s, ok := fullest(ran); ok {
		line(w, "highest", "the task with the highest peak is %s on %s", j.ID, s.Node)
		printSlice(w, s, false)
	}
}

// tasksText returns the number of ids, with the first id as an example. Tasks that have not started share a single id.
func tasksText(ids []string) string {
	if len(ids) == 1 {
		return ids[0]
	}
	return fmt.Sprintf("%d, for example %s", len(ids), ids[0])
}

// fullest returns the slice with the highest peak memory use, and its job.
func fullest(jobs []jobreport.Job) (of jobreport.Job, most jobreport.Slice, ok bool) {
	for _, j := range jobs {
		for _, s := range j.Slices {
			if s.Measured && (!ok || s.PeakMiB > most.PeakMiB) {
				of, most, ok = j, s, true
			}
		}
	}
	return of, most, ok
}

// printReports prints a table with one line for each job.
func printReports(w io.Writer, all []jobreport.Report) {
	table := [][]string{{"JOB", "NAME", "STATE", "RAN", "LIMIT", "REQUESTED", "SLICE", "PEAK", "BUSY", "GPU-HOURS",
		"ADVICE"}}
	for _, r := range all {
		j := r.Jobs[0]
		limit, ran, slice, peak, busy := "-", "-", "-", "-", "-"
		if j.Limit > 0 {
			limit = jobreport.Clock(int(j.Limit))
		}
		if j.Start > 0 {
			ran = jobreport.Clock(int(j.Run))
		}
		if _, s, ok := fullest(r.Jobs); ok {
			slice, peak = s.Profile, fmt.Sprintf("%.0f MiB", s.PeakMiB)
			if s.MemoryMiB > 0 {
				peak = fmt.Sprintf("%.0f%%", 100*s.PeakMiB/s.MemoryMiB)
			}
			if s.Busy != nil {
				busy = fmt.Sprintf("%.0f%%", 100**s.Busy)
			}
		}
		hours := strconv.FormatFloat(r.GPUHours, 'f', 2, 64)
		if r.Unweighted {
			hours = "-"
		}
		row := []string{j.ID, orDash(shortened(j.Name)), j.State, ran, limit, requestedProfile(j), slice, peak, busy,
			hours, topics(r.Advice)}
		for k := range row {
			row[k] = printable(row[k])
		}
		table = append(table, row)
	}
	rows(w, []bool{false, false, false, true, true, false, false, true, true, true, false}, table)
}

// requestedProfile returns the profile to which the advice on the job refers, or the number of GPUs if the job
// requested no profile.
func requestedProfile(j jobreport.Job) string {
	if profile := cmp.Or(j.Requested, j.Chosen); profile != "" || j.GPUs == 0 {
		return orDash(profile)
	}
	return plural(j.GPUs, "GPU")
}

// topics returns the advice's topics without duplicates, or a dash if there are none. NotEnded is omitted because the
// job's state already shows it.
func topics(all []jobreport.Advice) string {
	var list []string
	for _, a := range all {
		if a.Topic != jobreport.NotEnded && !slices.Contains(list, string(a.Topic)) {
			list = append(list, string(a.Topic))
		}
	}
	return orDash(strings.Join(list, ", "))
}
