package jobreport

import (
	"slices"
	"strings"
	"time"

	"caelum/internal/cli/gpuhours"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// Report describes one job, one array task, or all jobs of an array or a het job.
type Report struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Jobs lists the job, the array's tasks or the het job's components, in the order of slurmdbd's records.
	Jobs []Job `json:"jobs"`
	// GPUHours and SliceHours are sums over all jobs and all their runs (gpuhours.Run).
	GPUHours   float64 `json:"gpu_hours"`
	SliceHours float64 `json:"slice_hours"`
	// Unweighted is true if GPUHours omits slices whose fraction of the GPU is unknown.
	Unweighted bool     `json:"unweighted,omitempty"`
	Advice     []Advice `json:"advice"`
}

// Kind is the kind of job that a Report describes.
type Kind string

// These constants are the kinds of jobs.
const (
	Single Kind = "job" // a job, an array task or a component of a het job
	Array  Kind = "array"
	Het    Kind = "het job"
)

// Data is the input of New and Each.
type Data struct {
	Records []slurm.Allocation // must include all runs of each job, oldest first
	Names   map[uint64]string  // the job names by slurm.Record.Index; names may be missing
	Site    predict.Site
	Now     time.Time
}

// New returns the report on the job, array or het job with the given id in sacct's form (12, 12_3, 12+1). All records
// must belong to it. Without records, the report is empty.
func New(id string, d Data) Report {
	d.Records = ofLastUser(d.Records)
	r := Report{ID: id, Kind: Single, Jobs: jobs(d), Advice: []Advice{}}
	if len(r.Jobs) == 0 {
		return r
	}
	if !strings.ContainsAny(id, "_+") {
		switch ref := r.Jobs[0].ID; {
		case strings.Contains(ref, "_") && (len(r.Jobs) > 1 || strings.Contains(ref, "[")):
			r.Kind = Array
		case strings.Contains(ref, "+"):
			r.Kind = Het
		}
	}
	for _, j := range r.Jobs {
		r.GPUHours += j.GPUHours
		r.SliceHours += j.SliceHours
		r.Unweighted = r.Unweighted || j.Unweighted
	}
	if r.Kind == Array {
		r.Advice = advise(together(r.Jobs), d)
		return r
	}
	for _, j := range r.Jobs {
		for _, a := range advise(j, d) {
			if r.Kind == Het {
				a.Job = j.ID
			}
			r.Advice = append(r.Advice, a)
		}
	}
	return r
}

// Each returns a report on each job in the records that requested or held GPUs, newest first. Each array task and each
// component of a het job has its own report.
func Each(d Data) (all []Report) {
	for _, j := range jobs(d) {
		if !j.GPU {
			continue
		}
		all = append(all, Report{
			ID: j.ID, Kind: Single, Jobs: []Job{j}, GPUHours: j.GPUHours, SliceHours: j.SliceHours,
			Unweighted: j.Unweighted, Advice: advise(j, d),
		})
	}
	slices.Reverse(all)
	return all
}

// ofLastUser returns the records that belong to the newest record's user. The others belong to an earlier job with the
// same id, because slurmctld reuses ids after it has lost its state.
func ofLastUser(records []slurm.Allocation) (own []slurm.Allocation) {
	for _, r := range records {
		if r.UID == records[len(records)-1].UID {
			own = append(own, r)
		}
	}
	return own
}

// jobs returns the jobs in the records, in the order of each job's newest record.
func jobs(d Data) (all []Job) {
	observed := gpuhours.Observe(d.Records)
	hours := map[uint32]gpuhours.Run{}
	for _, h := range gpuhours.Hours(d.Records, time.Time{}, d.Now) {
		sum := hours[h.Job]
		sum.GPUSeconds += h.GPUSeconds
		sum.SliceSeconds += h.SliceSeconds
		sum.Unknown = append(sum.Unknown, h.Unknown...)
		hours[h.Job] = sum
	}
	runs := map[string][]slurm.Allocation{}
	for _, r := range d.Records {
		runs[r.Ref] = append(runs[r.Ref], r)
	}
	for _, r := range d.Records {
		of := runs[r.Ref]
		if of[len(of)-1].Index != r.Index {
			continue
		}
		j := newJob(of, observed, d)
		h := hours[r.ID]
		j.GPUHours, j.SliceHours, j.Unweighted = h.GPUSeconds/3600, h.SliceSeconds/3600, len(h.Unknown) > 0
		all = append(all, j)
	}
	return all
}

// together returns a job that represents all tasks of an array, with the usage of all finished tasks and the longest
// run. Its state, on which the advice depends, is FAILED if any task failed because it ran out of GPU memory, otherwise
// TIMEOUT if any task has this state, otherwise COMPLETED if any task has this state, and otherwise the state of the
// last task.
func together(tasks []Job) Job {
	all := tasks[len(tasks)-1]
	all.Slices, all.Earlier, all.Growths, all.observed, all.models, all.Run = nil, nil, nil, nil, nil, 0
	rank := -1
	for _, t := range tasks {
		all.GPU = all.GPU || t.GPU
		all.Earlier, all.Growths = append(all.Earlier, t.Earlier...), append(all.Growths, t.Growths...)
		if k := slices.Index([]string{"COMPLETED", "TIMEOUT", "FAILED"}, t.State); k > rank &&
			(t.State != "FAILED" || t.outOfMemory()) {
			rank, all.State, all.Exit = k, t.State, t.Exit
		}
	}
	for _, t := range tasks {
		if len(t.Slices) > 0 && (all.State != "COMPLETED" || t.State == "COMPLETED") {
			all.Slices = append(all.Slices, t.Slices...)
			all.observed, all.models = append(all.observed, t.observed...), append(all.models, t.models...)
			all.Nodes, all.Requested, all.request, all.Chosen = t.Nodes, t.Requested, t.request, t.Chosen
			all.comment, all.Submitted, all.Start, all.End = t.comment, t.Submitted, t.Start, t.End
		}
		if t.State == "COMPLETED" {
			all.Run = max(all.Run, t.Run)
		}
	}
	return all
}
