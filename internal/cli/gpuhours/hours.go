package gpuhours

import (
	"slices"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/slurm"
)

// Run is the GPU time used by one run between two points in time, that is, the time for which it held slices or whole
// GPUs.
type Run struct {
	Job                      uint32
	Account, User, Partition string
	Ended                    bool // false if the run has not ended
	Outside                  bool // the run held whole GPUs on nodes that Caelum does not manage
	Outgrown                 bool // the run ended because its slice had, or would have had, too little memory
	// SliceSeconds is the time for which the run held slices or whole GPUs, multiplied by their number. In GPUSeconds,
	// each slice counts as the fraction of the GPU that it occupied.
	SliceSeconds, GPUSeconds float64
	// Unknown lists the profiles whose fraction of a GPU is unknown, with an empty string for slices whose profile is
	// unknown. GPUSeconds does not include slices of these profiles.
	Unknown []string
}

// Hours returns the GPU time that the run in each record used between the times from and to, in the order of the
// records. It omits runs that held no GPU. A run that has not ended is assumed to hold its GPUs until the end of the
// period.
//
// There are two sources for the slices of a run. The agents' summaries (predict.Summaries) show the slices that the run
// actually held, which may be larger than those requested, and how long it held them. However, they exist only after
// the run has ended, and only if the site stores summaries. The record's GRES show the requested profiles. Hours uses
// the summaries if they describe as many slices as the record's GRES.
//
// The records must include all runs of a job between the times from and to, because slurmdbd stores the summaries of
// all runs of a requeued job in the job's newest record.
func Hours(records []slurm.Allocation, from, to time.Time) []Run {
	return Observe(records).Hours(records, from, to)
}

// Hours is like the function Hours, but the summaries of the runs are in o, so the records may be a part of those from
// which o was made.
func (o Observed) Hours(records []slurm.Allocation, from, to time.Time) []Run {
	var runs []Run
	for _, r := range records {
		run := Run{Job: r.ID, Account: r.Account, User: r.User, Partition: r.Partition, Ended: !r.End.IsZero()}
		for _, h := range held(r, o, to) {
			run.add(h, from, to)
		}
		if run.SliceSeconds > 0 {
			runs = append(runs, run)
		}
	}
	return runs
}

// holding is a number of instances of one profile, or of whole GPUs, that a run held between two Unix times in seconds.
// The profile is empty if AccountingStorageTRES does not list the profiles.
type holding struct {
	profile  string
	models   []*mig.Model // the possible GPU models of the instances
	whole    bool         // whole GPUs on nodes that Caelum does not manage
	outgrown bool         // see Run
	count    int
	from, to float64
}

// add adds to the run the part of h that lies between the times from and to.
func (r *Run) add(h holding, from, to time.Time) {
	seconds := min(h.to, float64(to.Unix())) - max(h.from, float64(from.Unix()))
	if seconds <= 0 {
		return
	}
	seconds *= float64(h.count)
	r.SliceSeconds += seconds
	r.Outside, r.Outgrown = r.Outside || h.whole, r.Outgrown || h.outgrown
	share, ok := shareOf(h.profile, h.models)
	switch {
	case h.whole:
		r.GPUSeconds += seconds
	case ok:
		r.GPUSeconds += share * seconds
	case !slices.Contains(r.Unknown, h.profile):
		r.Unknown = append(r.Unknown, h.profile)
	}
}

// held returns the instances and whole GPUs that the run in a record held. A run that has not ended is counted up to
// now.
func held(r slurm.Allocation, observed Observed, now time.Time) (all []holding) {
	if r.Start.IsZero() {
		return nil
	}
	counted := Counted(r)
	described := 0
	for _, s := range observed.Runs(r, now) {
		described += s.Slices
		began := float64(s.Start)
		all = append(all, holding{
			profile: s.Profile, models: observed.Models(s.Node), outgrown: s.End != "", count: s.Slices,
			from: began, to: began + s.Seconds,
		})
	}
	if described > 0 && described == counted.Total("mig") {
		return all
	}
	all = nil
	began, ended := float64(r.Start.Unix()), float64(endOf(r, now).Unix())
	models, managed := modelsFor(r, observed.nodes, began, ended)
	for _, g := range counted {
		all = append(all, holding{profile: g.Type, models: models, count: g.Count, from: began, to: ended})
	}
	if gpus := GPUs(r); len(all) == 0 && gpus > 0 && !managed {
		all = append(all, holding{whole: true, count: gpus, from: began, to: ended})
	}
	return all
}

// Counted returns the slices that slurmctld counted for the run, normally the allocated ones. For an --exclusive job,
// to which slurmctld allocates all slices of the node, Counted returns the requested slices, because the agents carve
// only those.
func Counted(r slurm.Allocation) (counted slurm.GRESList) {
	requested, allocated := r.Requested.Profiles(), r.Allocated.Named("mig")
	typed := slices.ContainsFunc(allocated, func(g slurm.GRES) bool { return g.Type != "" })
	for _, g := range allocated {
		if g.Type == slurm.ClosedType || typed && g.Type == "" { // the entry without a type is the total
			continue
		}
		if n := min(g.Count, requested[g.Type]); n > 0 {
			g.Count = n
			counted = append(counted, g)
		}
	}
	return counted
}

// GPUs returns the number of allocated gres/gpu, regardless of their type.
func GPUs(r slurm.Allocation) (n int) {
	typed := 0
	for _, g := range r.Allocated.Named("gpu") {
		if g.Type == "" {
			n += g.Count
		} else {
			typed += g.Count
		}
	}
	return max(n, typed)
}

// modelsFor returns the possible GPU models of the nodes of a run that began and ended at the given times. managed is
// false if nothing shows that Caelum managed the nodes at this time, because the run was allocated no gres/mig, and it
// ended before the nodes' first summaries begin or began after their last ones end.
func modelsFor(r slurm.Allocation, known nodes, began, ended float64) (models []*mig.Model, managed bool) {
	managed = len(r.Allocated.Named("mig")) > 0
	for _, n := range r.Nodes {
		if n, ok := known[strings.ToLower(n)]; ok {
			return n.models, managed || began <= n.last && ended >= n.first
		}
	}
	for _, g := range r.Allocated.Named("gpu") {
		if g.Type != "" {
			return modelsOf(g.Type, ""), managed
		}
	}
	return mig.Models(), managed
}
