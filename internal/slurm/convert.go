package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ConvertMark begins the AdminComment with which root makes job_submit.lua add slices to a waiting job (convert in
// job_submit.lua). If it is still there after the update, the script has not run.
const ConvertMark = "caelum:convert"

// tasksPerGPU matches the line of scontrol's output that shows --ntasks-per-gpu.
var tasksPerGPU = regexp.MustCompile(`(?m)^   NtasksPerTRES=([0-9]{1,5}) *$`)

// ConvertMarks returns the AdminComment for each waiting job, by job id. It is empty unless the job requests GPUs but
// no slices. It contains the numbers of the request that job_submit.lua cannot read from the job's record. Users cannot
// imitate them in the name of a job or in its comment.
func (c *Client) ConvertMarks(ctx context.Context, waiting []Waiting) (map[uint32]string, error) {
	columns := "SQUEUE_FORMAT2=jobid:12,numtasks:12,ntpernode:12,cpus-per-task:12"
	out, err := c.run(ctx, []string{columns}, c.squeue, append([]string{"-t", "PENDING"}, squeueArgs...)...)
	if err != nil {
		return nil, err
	}
	numbers, marks := map[string][]string{}, map[uint32]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 {
			numbers[f[0]] = f[1:]
		}
	}
	for _, w := range waiting {
		text, ok := numbers[strconv.FormatUint(uint64(w.ID), 10)]
		if !ok || len(w.PerNode.Named("mig")) > 0 {
			continue
		}
		var n [4]int // tasks, tasks per node, CPUs per task, tasks per GPU
		for k := range text {
			n[k], _ = strconv.Atoi(text[k]) // 0 for N/A
		}
		if w.GPUsPerNode() == 0 && w.Batch {
			out, err := c.run(ctx, nil, c.scontrol, "show", "job", ref(Job{ID: w.ID, HetJob: w.HetJob}))
			if err != nil && !errors.Is(err, ErrNoJob) {
				return nil, err
			}
			// A batch job's name and comment precede this line.
			if m := tasksPerGPU.FindStringSubmatch(out[max(strings.LastIndex(out, "\n   StdOut="), 0):]); m != nil {
				n[3], _ = strconv.Atoi(m[1])
			}
		}
		marks[w.ID] = convertMark(w, n)
	}
	return marks, nil
}

// convertMark returns the AdminComment for one job, or an empty string if it requests no GPUs. slurmctld shows at least
// one task per node and one CPU per task, even if the request does not contain these numbers.
func convertMark(w Waiting, n [4]int) string {
	mark := ConvertMark
	add := func(name string, n, least int) {
		if n >= least {
			mark += fmt.Sprintf(" %s=%d", name, n)
		}
	}
	switch {
	case w.GPUsPerNode() > 0:
		add("num_tasks", n[0], w.NumNodes+1)
	case n[3] > 0: // --ntasks-per-gpu without a number of GPUs
		add("num_tasks", n[0], 1)
		add("ntasks_per_tres", n[3], 1)
	default:
		return ""
	}
	add("ntasks_per_node", n[1], 1)
	add("cpus_per_task", n[2], 2)
	add("sockets_per_node", w.Sockets, 1)
	add("named", len(w.ReqNodes)+len(w.ExcNodes), 1)
	if w.Exclusive {
		add("shared", 0, 0)
	}
	return mark
}

// OwnExcluded returns the excluded nodes without the catalogue nodes, which job_submit.lua excludes.
func (w Waiting) OwnExcluded() []string {
	return slices.DeleteFunc(slices.Clone(w.ExcNodes), func(node string) bool {
		return strings.HasPrefix(node, cataloguePrefix)
	})
}

// RemoveSlices removes Caelum's additions from a pending job's request: the slices, the excluded catalogue nodes, and
// the CPUs and memory that come with the slices, which shared names (the Share tag). It replaces AdminComment. The job
// keeps its GPUs.
func (c *Client) RemoveSlices(ctx context.Context, w Waiting, shared, comment string) error {
	return c.onJob(ctx, w.ID, func(j Job) ([]string, error) {
		args := []string{"update", "jobid=" + ref(j), "admincomment=" + comment}
		add := func(format string, values ...any) { args = append(args, fmt.Sprintf(format, values...)) }
		if own := w.OwnExcluded(); len(own) < len(w.ExcNodes) {
			add("excnodelist=%s", strings.Join(own, ","))
		}
		if i := strings.Index(j.CPUsPerTRES, ",gres"); strings.Contains(shared, "cpus") {
			add("cpuspertres=")
		} else if i > 0 { // job_submit.lua adds the entry of the slices
			add("cpuspertres=%s", j.CPUsPerTRES[:i])
		}
		if strings.Contains(shared, "memory") {
			add("mempertres=")
		}
		// Each update without this number replaces it if the job has a number of tasks per node (24.11.5).
		if w.Tasks > w.NumNodes {
			add("numtasks=%d", w.Tasks)
		}
		rest := slices.DeleteFunc(j.PerNode.Positive(), func(g GRES) bool { return g.Name == "mig" })
		switch {
		case len(j.PerNode.Named("mig")) == 0:
			return args, nil
		case len(rest) == 0:
			add("trespernode=")
			return args, nil
		}
		add("gres=%s", rest)
		total := j.PerJob.Total("gpu")
		if total == 0 {
			total = j.PerTask.Total("gpu") * j.Tasks
		}
		// In the record of a job without a largest number of nodes, this number is 0, with which slurmctld would reject
		// GPUs per node and job (_test_gres_cnt in gres.c, 22.05.8).
		if per := rest.Total("gpu"); per > 0 && total > 0 && total%per == 0 {
			add("numnodes=%d-%d", total/per, total/per)
		}
		// The update removes the tasks per GPU (--ntasks-per-gpu), from which slurmctld derives the CPUs (24.11.5).
		if w.Tasks > w.NumNodes {
			add("numcpus=%d", max(j.CPUs, w.Tasks))
		}
		if j.Sockets > 0 && len(j.PerSocket) > 0 { // slurmctld does not take it from the job's record (22.05.8)
			add("reqsockets=%d", j.Sockets)
		}
		return args, checkGRES(rest)
	})
}
