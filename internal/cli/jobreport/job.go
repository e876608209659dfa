package jobreport

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/cli/gpuhours"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Job describes a job's last run, and the earlier runs that ended with a requeue. Times are Unix seconds, or 0 if
// unknown; durations are seconds.
type Job struct {
	ID        string   `json:"id"` // in sacct's form: 12, 12_3, 12_[4-9], 12+1
	Name      string   `json:"name"`
	User      string   `json:"user"`
	Account   string   `json:"account"`
	Partition string   `json:"partition"`
	Nodes     []string `json:"nodes,omitempty"`
	State     string   `json:"state"`
	Exit      int      `json:"exit"` // slurm.Record.Exit

	Submitted int64 `json:"submitted,omitempty"`
	Start     int64 `json:"start,omitempty"`
	End       int64 `json:"end,omitempty"`
	Wait      int64 `json:"wait"`            // from submission to start or, if it has not started, to the end or to now
	Run       int64 `json:"run"`             // from start to end, or to now
	Limit     int64 `json:"limit,omitempty"` // 0 if the job has no time limit

	GPU       bool   `json:"gpu"`                 // the job requested or held GPUs
	GPUs      int    `json:"gpus,omitempty"`      // the number of allocated GPUs or slices
	Requested string `json:"requested,omitempty"` // the profiles, for example "2g.10gb x2"; empty if unknown
	// Chosen is the profile that Caelum chose because the request did not name one, or empty if the request did.
	Chosen  string           `json:"chosen,omitempty"`
	Slices  []Slice          `json:"slices,omitempty"` // the slices of the last run
	Growths []predict.Growth `json:"growths,omitempty"`
	// Unavailable is the number of times that the job was requeued because its slice was not available.
	Unavailable int       `json:"unavailable,omitempty"`
	Earlier     []Earlier `json:"earlier,omitempty"`

	GPUHours   float64 `json:"gpu_hours"`
	SliceHours float64 `json:"slice_hours"`
	Unweighted bool    `json:"unweighted,omitempty"` // see Report

	outside  bool           // nothing shows that Caelum managed the last run, which got GPUs but no slices
	raw      uint32         // slurm.Record.ID
	comment  string         // admin_comment
	request  map[string]int // the number of requested slices of each profile, on all nodes
	observed []predict.Run  // one run for each element of Slices
	models   [][]*mig.Model // the possible GPU models of each of the Slices
}

// Slice describes the slices of one profile that the job held on one node.
type Slice struct {
	Node      string  `json:"node"`
	Profile   string  `json:"profile"`
	Model     string  `json:"model"` // the GPU type, such as a100
	Count     int     `json:"count"`
	MemoryMiB float64 `json:"memory_mib,omitempty"` // per slice; 0 if unknown
	// Measured is false if the agent did not take any samples. PeakMiB is the highest memory use of any of the slices.
	Measured bool    `json:"measured"`
	PeakMiB  float64 `json:"peak_mib"`
	// Busy is the mean fraction of the slice's SMs that were busy, from 0 to 1, or nil if unknown.
	Busy *float64 `json:"busy,omitempty"`
	// Xids lists the Xid errors on the slices in the form of predict.Run.Xids.
	Xids string `json:"xids,omitempty"`
}

// Earlier is an earlier run of the job.
type Earlier struct {
	State string `json:"state"`
	Run   int64  `json:"run"` // seconds
	// Profile is the profile of the run's slices, and PeakMiB is the highest memory use, if known.
	Profile string  `json:"profile,omitempty"`
	PeakMiB float64 `json:"peak_mib,omitempty"`
	End     string  `json:"end,omitempty"` // predict.Run.End
}

// newJob returns the job with the given runs, oldest first.
func newJob(runs []slurm.Allocation, observed gpuhours.Observed, d Data) Job {
	last := runs[len(runs)-1]
	j := Job{
		ID: last.Ref, Name: d.Names[last.Index], User: last.User, Account: last.Account, Partition: last.Partition,
		Nodes: last.Nodes, State: last.State, Exit: last.Exit,
		Submitted: unix(last.Submitted), Start: unix(last.Start), End: unix(last.End),
		Limit: int64(last.Limit.Seconds()), Run: runSeconds(last, d.Now),
		Growths: tags.Growths(slurm.Job{AdminComment: last.Comment}),
		Chosen:  tags.Value(last.Comment, tags.Size), GPUs: gpuhours.GPUs(last),
		raw: last.ID, comment: last.Comment,
	}
	if until := firstOf(last.Start, last.End, d.Now); !last.Submitted.IsZero() {
		j.Wait = max(0, until.Unix()-last.Submitted.Unix())
	}
	if n, err := strconv.ParseUint(tags.Value(last.Comment, tags.Requeued), 10, 16); err == nil {
		j.Unavailable = int(n)
	}
	j.request = map[string]int{}
	counted, managed := gpuhours.Counted(last), last.Allocated.Total("mig") > 0
	if managed { // slurmctld allocates all slots of the node to an --exclusive job
		j.GPUs = counted.Total("mig")
	}
	for _, g := range counted {
		if g.Type != "" {
			j.request[g.Type] += g.Count
		}
	}
	if len(j.request) == 0 {
		j.request = last.Requested.Profiles()
		maps.DeleteFunc(j.request, func(profile string, _ int) bool { return profile == "" }) // the total
	}
	j.Requested = profiles(j.request)
	for _, s := range observed.Runs(last, d.Now) {
		s.Job, s.State, s.Exit = last.ID, last.State, last.Exit
		models := observed.Models(s.Node)
		j.Slices = append(j.Slices, newSlice(s, models))
		j.observed, j.models = append(j.observed, s), append(j.models, models)
	}
	for _, r := range runs[:len(runs)-1] {
		j.Earlier = append(j.Earlier, newEarlier(r, observed, d.Now))
	}
	j.GPU = len(j.Slices) > 0 || last.Requested.Total("gpu")+last.Requested.Total("mig") > 0 ||
		!managed && last.Allocated.Total("gpu") > 0
	// job_submit.lua adds the key to every job to which it gives slices.
	j.outside = j.GPUs > 0 && !managed && len(j.Slices) == 0 && tags.Value(last.Comment, tags.Key) == ""
	return j
}

func newSlice(s predict.Run, models []*mig.Model) Slice {
	slice := Slice{
		Node: s.Node, Profile: s.Profile, Model: s.GPUType, Count: s.Slices, MemoryMiB: memory(s.Profile, models),
		Measured: s.Samples > 0, PeakMiB: s.PeakMiB, Xids: s.Xids,
	}
	if s.Samples > 0 && s.Util >= 0 {
		slice.Busy = &s.Util
	}
	return slice
}

// memory returns a slice's memory in MiB: the smallest among the possible GPU models, or 0 if none has the profile. A
// full GPU has at least as much memory as the largest profile.
func memory(profile string, models []*mig.Model) (least float64) {
	for _, m := range models {
		mib := 0.0
		if k, ok := m.ProfileIndex(profile); ok {
			mib = m.Profiles[k].Memory()
		} else if profile == mig.Full {
			for k := range m.Profiles {
				mib = max(mib, m.Profiles[k].Memory())
			}
		}
		if mib > 0 && (least == 0 || mib < least) {
			least = mib
		}
	}
	return least
}

func newEarlier(r slurm.Allocation, observed gpuhours.Observed, now time.Time) Earlier {
	e := Earlier{State: r.State, Run: runSeconds(r, now)}
	for _, s := range observed.Runs(r, now) {
		e.Profile, e.PeakMiB = s.Profile, max(e.PeakMiB, s.PeakMiB)
		if s.End != "" {
			e.End = s.End
		}
	}
	return e
}

// outOfMemory reports whether the last run certainly or probably ended because it ran out of GPU memory.
func (j Job) outOfMemory() bool { return slices.ContainsFunc(j.observed, predict.Run.OutOfMemory) }

// measured reports whether an agent has measured the usage of the last run.
func (j Job) measured() bool {
	return slices.ContainsFunc(j.Slices, func(s Slice) bool { return s.Measured })
}

// Ended reports whether the last run has ended, or the job was cancelled before it started.
func (j Job) Ended() bool { return j.End > 0 }

// profiles formats the number of slices of each profile, sorted by name.
func profiles(of map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] == 1 {
			all = append(all, name)
			continue
		}
		all = append(all, fmt.Sprintf("%s x%d", name, of[name]))
	}
	return strings.Join(all, ", ")
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// firstOf returns the first time that is not zero.
func firstOf(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// runSeconds returns the run time of a record's run in seconds. A run that has not ended is counted up to now.
func runSeconds(r slurm.Allocation, now time.Time) int64 {
	if r.Start.IsZero() {
		return 0
	}
	return max(0, firstOf(r.End, now).Unix()-r.Start.Unix())
}
