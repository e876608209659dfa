package preempt

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// Mode is the way in which slurmctld stops a preempted job.
type Mode string

const (
	Off     Mode = ""        // the job is not stopped
	Requeue Mode = "REQUEUE" // the job returns to the queue; if it must not be requeued, it is cancelled
	Cancel  Mode = "CANCEL"
)

// The values of PreemptType that the rules support.
const (
	byPartition = "preempt/partition_prio"
	byQOS       = "preempt/qos"
)

// slurmdbd is the AccountingStorageType of a cluster that uses QOS.
const slurmdbd = "accounting_storage/slurmdbd"

// Rules contains slurmctld's settings for preemption. If the rules cannot determine everything that Slurm's settings
// allow, they are stricter than the settings. They never allow a preemption that slurmctld would not carry out.
type Rules struct {
	kind       string
	mode       string // PreemptMode
	exempt     time.Duration
	protected  uint64 // jobs with a higher priority are exempt (min_exempt_priority); 0 if there is no limit
	partitions map[string]slurm.Partition
	qos        map[string]slurm.QOS
	needsQOS   bool // jobs have a QOS
}

// NewRules returns the rules of a configuration. qos contains all QOS, or is nil if there is no slurmdbd. NewRules
// returns an error if the configuration cannot be parsed.
func NewRules(c slurm.Config, partitions []slurm.Partition, qos []slurm.QOS) (Rules, error) {
	r := Rules{
		kind: c.Values["PreemptType"], mode: strings.ToUpper(c.Values["PreemptMode"]),
		partitions: map[string]slurm.Partition{}, qos: map[string]slurm.QOS{}, needsQOS: HasQOS(c),
	}
	if !c.Preempts() || r.kind != byPartition && r.kind != byQOS || has(r.mode, "GANG") || !known(r.mode) {
		r.kind = ""
	}
	var err error
	if r.exempt, err = c.PreemptExempt(); err != nil {
		return Rules{}, fmt.Errorf("PreemptExemptTime: %w", err)
	}
	if r.protected, err = minExemptPriority(c.Values["PreemptParameters"]); err != nil {
		return Rules{}, err
	}
	for _, p := range partitions {
		r.partitions[p.Name] = p
	}
	for _, q := range qos {
		r.qos[q.Name] = q
	}
	return r, nil
}

// minExemptPriority returns the priority above which PreemptParameters exempts jobs from preemption, or 0 if it exempts
// no jobs. Slurm has supported the parameter since 23.02 (src/interfaces/preempt.c).
func minExemptPriority(parameters string) (uint64, error) {
	for parameter := range strings.SplitSeq(parameters, ",") {
		name, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.TrimSpace(name), "min_exempt_priority") {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if err != nil || n == 0 {
				return 0, fmt.Errorf("PreemptParameters: couldn't parse min_exempt_priority=%q", value)
			}
			return n, nil
		}
	}
	return 0, nil
}

// HasQOS reports whether the jobs of a cluster have QOS, which slurmdbd stores.
func HasQOS(c slurm.Config) bool { return c.Values["AccountingStorageType"] == slurmdbd }

// Enabled reports whether the rules allow any preemption.
func (r Rules) Enabled() bool { return r.kind != "" }

// has reports whether a PreemptMode contains a word.
func has(mode, word string) bool { return slices.Contains(strings.Split(mode, ","), word) }

// known reports whether the rules support all words of a PreemptMode. Slurm has supported PRIORITY since 25.11.
func known(mode string) bool {
	for word := range strings.SplitSeq(mode, ",") {
		switch word {
		case "OFF", "CANCEL", "REQUEUE", "SUSPEND", "WITHIN", "PRIORITY", "CLUSTER":
		default:
			return false
		}
	}
	return true
}

// ModeOf returns the way in which a running job would be stopped. SUSPEND counts as Off, because a suspended job keeps
// its slices.
func (r Rules) ModeOf(j slurm.Job) Mode {
	mode := r.mode
	if r.kind == byPartition {
		p, ok := r.partitions[j.Partition]
		if mode = p.PreemptMode; !ok {
			return Off
		}
	} else if own := r.qos[j.QOS].PreemptMode; own != "CLUSTER" {
		mode = own
	}
	switch {
	case !known(mode) || has(mode, "SUSPEND") || has(mode, "OFF"):
		return Off
	case has(mode, string(Requeue)):
		return Requeue
	case has(mode, string(Cancel)):
		return Cancel
	}
	return Off
}

// Grace returns the time between sending the signals to a preempted job and ending the job.
func (r Rules) Grace(j slurm.Job) time.Duration {
	if r.kind == byPartition {
		return r.partitions[j.Partition].Grace
	}
	return r.qos[j.QOS].Grace
}

// May reports whether slurmctld would stop the running job j for the waiting job w at the given time.
func (r Rules) May(w slurm.Waiting, j slurm.Job, now time.Time) bool {
	if !r.Enabled() || j.State != "RUNNING" || j.HetJob != 0 || w.HetJob != 0 || j.Start.IsZero() {
		return false
	}
	if r.protected > 0 && j.Priority > r.protected {
		return false
	}
	exempt, ok := r.exemptTime(j)
	if !ok || now.Before(j.Start.Add(exempt)) || r.ModeOf(j) == Off {
		return false
	}
	if r.kind == byPartition {
		return r.higherTier(w, j)
	}
	return r.qosAllows(w, j)
}

// exemptTime returns the time for which a job is exempt after its start: the longest of the times set by the cluster,
// by the job's QOS and by its partition's QOS. slurmctld may use a shorter one of them (acct_policy.c, 22.05.8). ok is
// false if a QOS is unknown.
func (r Rules) exemptTime(j slurm.Job) (exempt time.Duration, ok bool) {
	exempt = r.exempt
	for _, name := range []string{j.QOS, r.partitions[j.Partition].QOS} {
		if name == "" || !r.needsQOS {
			continue
		}
		q, ok := r.qos[name]
		if !ok {
			return 0, false
		}
		exempt = max(exempt, q.Exempt)
	}
	return exempt, true
}

// Tier returns the lowest PriorityTier among the partitions of a waiting job, because the job might start in any of
// them. The result is -1 if the tier of a partition is unknown.
func (r Rules) Tier(w slurm.Waiting) int {
	lowest := -1
	for k, name := range w.Partitions() {
		p, ok := r.partitions[name]
		if !ok {
			return -1
		}
		if k == 0 || p.Tier < lowest {
			lowest = p.Tier
		}
	}
	return lowest
}

// Precedes reports whether slurmctld considers the waiting job w before the waiting job o, regardless of their
// priorities: w can preempt o, or each partition of w has a higher tier than all partitions of o (sort_job_queue2 in
// job_scheduler.c, 22.05.8 to 26.05.3).
func (r Rules) Precedes(w, o slurm.Waiting) bool {
	if r.kind == byQOS && r.qosAllows(w, *o.Job) {
		return true
	}
	return !slices.ContainsFunc(o.Partitions(), func(name string) bool {
		p, ok := r.partitions[name]
		return !ok || p.Tier >= r.Tier(w)
	})
}

// higherTier implements preempt/partition_prio (preempt_p_preemptable, 22.05.8 to 26.05.3).
func (r Rules) higherTier(w slurm.Waiting, j slurm.Job) bool {
	p, ok := r.partitions[j.Partition]
	if !ok || p.Tier < 0 || r.Tier(w) <= p.Tier {
		return false
	}
	modes := []string{r.mode}
	for _, name := range w.Partitions() {
		modes = append(modes, r.partitions[name].PreemptMode)
	}
	return !slices.ContainsFunc(modes, func(mode string) bool { return has(mode, "PRIORITY") }) ||
		w.Priority > j.Priority
}

// qosAllows implements preempt/qos (preempt_p_preemptable, 22.05.8 to 26.05.3).
func (r Rules) qosAllows(w slurm.Waiting, j slurm.Job) bool {
	own, ok := r.qos[w.QOS]
	if _, other := r.qos[j.QOS]; !ok || !other {
		return false
	}
	word := func(word string) bool { return has(own.PreemptMode, word) || has(r.mode, word) }
	if own.Name == j.QOS {
		return word("WITHIN") && w.Priority > j.Priority
	}
	return slices.Contains(own.Preempt, j.QOS) && (!word("PRIORITY") || w.Priority > j.Priority)
}
