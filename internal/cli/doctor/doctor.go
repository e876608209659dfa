package doctor

import (
	"slices"
	"strings"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// Severity is the severity of a finding: OK, Info (no action is necessary), Warning (the node works but needs
// attention) or Error (something on the node does not work).
type Severity string

// OK, Info, Warning and Error are the severities, from lowest to highest.
const (
	OK      Severity = "ok"
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Finding is one result of a check.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	// Next is the remedy. It is empty if the severity is OK or Info.
	Next string `json:"next,omitempty"`
}

func fault(text, next string) Finding   { return Finding{Severity: Error, Text: text, Next: next} }
func warning(text, next string) Finding { return Finding{Severity: Warning, Text: text, Next: next} }
func note(text string) Finding          { return Finding{Severity: Info, Text: text} }

// findingIf returns a list containing only f if the condition is true, and nil otherwise.
func findingIf(f Finding, condition bool) []Finding {
	if !condition {
		return nil
	}
	return []Finding{f}
}

// Source is a source of facts.
type Source string

// These are the sources of facts. A source may depend on the sources above it.
const (
	Slurmctld Source = "slurmctld"
	OwnNode   Source = "node"
	Agent     Source = "agent"
	Plugstack Source = "plugstack.conf"
	Devices   Source = "device files"
	Module    Source = "driver"
	Decisions Source = "decision table"
	Slurmdbd  Source = "slurmdbd"
)

var sources = []Source{Slurmctld, OwnNode, Agent, Plugstack, Devices, Module, Decisions, Slurmdbd}

// nodeSources lists the sources that exist only on GPU nodes.
var nodeSources = []Source{OwnNode, Agent, Plugstack, Devices, Module}

// Facts holds the values that Examine evaluates.
type Facts struct {
	// Missing contains a finding for each source that could not be read. The fields that come from these sources are
	// zero.
	Missing map[Source]Finding

	// Controller is true if this host runs slurmctld and is not a GPU node. Examine then skips the checks that need one
	// of nodeSources.
	Controller bool
	// ControllerHost is true if this host runs slurmctld, is not one of its nodes and has no agent. Examine then only
	// reports that Controller must be set.
	ControllerHost bool

	// RunDir is the agent's run directory. Unless it is the default directory, the plugin needs the run_dir argument.
	RunDir string

	// The following fields are read from slurmctld. Asked and Answered are the times on this host's clock immediately
	// before and after the request for Config.
	Config          slurm.Config
	Asked, Answered time.Time
	Nodes           []slurm.Node
	Partitions      []slurm.Partition
	Node            slurm.Node

	Agent  api.Status
	Plugin Plugin
	Files  []CapFile
	// Unlisted holds the leased instances that the agent reports but the driver does not list.
	Unlisted []api.Instance
	// NoSlots lists the paths of the slots' device files that are missing.
	NoSlots []string

	Confinement Confinement

	// Fractions is true if the fractions key is set, and SoftMig is true if SoftMig limits their memory. NoFractions is
	// the reason why their memory cannot be limited, with a remedy after a semicolon, or empty if it can.
	Fractions, SoftMig bool
	NoFractions        string
	// UnusedTypes describes the types in the key that divide no GPU of this node (gpu.UnusedTypes).
	UnusedTypes []string

	Driver Driver
	Table  Table
	Notify Notify

	// Owners describes incorrect owners and modes of files that root's processes read, load or write.
	Owners Files
	// Unmanaged holds the device files of GPUs that the agent does not manage.
	Unmanaged []UnmanagedGPU

	// Settings is this host's policy and sizing, formatted by plan.Settings.Text.
	Settings string

	// Preempt and Learn are this host's preempt and learn keys, which only the watcher uses.
	Preempt, Learn bool
	// MovesPerDay and MovePartitions are this host's moves_per_day and move_partitions.
	MovesPerDay    int
	MovePartitions []string

	// Learning is the progress of learning. It is zero unless ReadLearning was called.
	Learning Learning

	// Limits lists the limits on gres/gpu in slurmdbd.
	Limits []string
}

// check is a single check together with the sources that it needs. If run returns no findings, Examine adds an OK
// finding with okText, which is empty for checks that return only Info findings.
type check struct {
	name   string
	okText string
	needs  []Source
	run    func(*Facts) []Finding
}

func checks() []check {
	ctld, node := []Source{Slurmctld}, []Source{Slurmctld, OwnNode}
	return []check{
		{"agent", agentOK, []Source{Agent}, publishing},
		{"gpus", "the agent manages every GPU", []Source{Agent}, gpus},
		{"instances", "no instance is stuck or foreign, and every slice has all its SMs", []Source{Agent}, instances},
		{"ledger", "the driver lists the instances of all jobs", []Source{Agent, Devices}, ledger},
		{"slot files", "the device files of all slots exist", []Source{Agent}, slotFiles},
		{"device files", "a slice can be opened only by the user of its job", []Source{Agent, Devices}, deviceFiles},
		{"prolog", "PrologFlags includes Alloc and does not include RunInJob", ctld, prologFlags},
		{"batch start", "BatchStartTimeout is longer than the maximum wait of a prolog", ctld, batchStart},
		{"reconfigure", "`scontrol reconfigure` does not interrupt a waiting prolog", ctld, reconfigureWait},
		{"select", "SelectType can allocate parts of a node", ctld, selectType},
		{"backfill", "SchedulerParameters includes bf_continue", ctld, backfill},
		{"preemption", "the watcher may stop jobs for other profiles, or Slurm never preempts", ctld, preemption},
		{"moves", "moves_per_day is 0, or the watcher can move jobs", ctld, moves},
		{"het jobs", "SchedulerParameters includes bf_hetjob_prio=min", ctld, hetPriority},
		{"gres types", "GresTypes includes gpu and mig", ctld, gresTypes},
		{"accounting", "AccountingStorageTRES includes gres/mig", ctld, accounting},
		{"release", "Caelum supports slurmctld's release and its parameters", ctld, supported},
		{"clock", "the clocks of slurmctld and this host agree", ctld, clock},
		{"node", "slurmctld can start jobs on this node", node, nodeState},
		{"closed", "the node has gres/mig:closed", node, closed},
		{
			"total",
			"the sum of gres/mig equals the sum in slurm.conf and is at least four times the number of slots",
			node,
			total,
		},
		{"used", "every slice that slurmctld counts as used is held by a job", append(node, Agent), excess},
		{"slots", "the gres/gpu count equals the largest number of slices on the GPUs", append(node, Agent), slots},
		{"partitions", "every partition of this node can allocate parts of it", node, exclusive},
		{
			"catalogue",
			"the catalogue nodes are in the FUTURE state and share a partition with this node",
			ctld,
			catalogue,
		},
		{"features", "the catalogue nodes have no features that no real node has", node, features},
		{"resources", "a catalogue node has the GRES, hardware and features of each real node", ctld, resources},
		{"mixed partitions", "jobs can start on the other GPU nodes in the partitions", ctld, mixedPartitions},
		{"profiles", "slurm.conf lists the same profiles as the driver", append(node, Agent), profiles},
		{
			"decision table",
			"job_submit.lua can read the table, and the table agrees with slurm.conf",
			[]Source{Slurmctld, Decisions},
			decisionTable,
		},
		{
			"learning",
			"Caelum learns from the runs that have ended",
			[]Source{Slurmctld, Decisions},
			learning,
		},
		{
			"unlisted partitions",
			"the decision table lists all partitions with managed nodes",
			[]Source{Slurmctld, Decisions},
			unlistedPartitions,
		},
		{
			"plugin",
			"plugstack.conf requires the plugin, which was built for this slurmd's release",
			[]Source{Slurmctld, Plugstack},
			plugin,
		},
		{"isolation", "no other user or job can open a job's slice", node, isolation},
		{
			"fractions",
			"the driver and Slurm can limit jobs to fractions of GPUs, or the site divides no GPU",
			node,
			fractions,
		},
		{
			"driver",
			"ModifyDeviceFiles is 0, and all device files that GPU programs need exist",
			[]Source{Module},
			driver,
		},
		{
			"capability files",
			"the files that this node's programs need exist, and only authorized users can monitor MIG",
			[]Source{Module},
			capabilityFiles,
		},
		{"plan settings", "all agents have the same policy and sizing as this host", ctld, planSettings},
		{"wake port", "the port is open, and munge or a key file authenticates notifications", ctld, notifyPort},
		{
			"whole GPUs",
			"no job can open a GPU that Slurm did not allocate to it",
			[]Source{Slurmctld, Agent, Devices},
			wholeGPUs,
		},
		{"owners", "only root can change the files that root's processes read, load and write", nil, owners},
		{"memory", "the driver overwrites freed GPU memory", []Source{Module}, scrubbing},
		{"limits", "", []Source{Slurmctld, Slurmdbd}, limits},
	}
}

// Examine evaluates the facts. It returns a finding for each source that could not be read, followed by each check's
// findings in a fixed order.
func Examine(f *Facts) []Finding {
	if f.ControllerHost {
		wrong := fault("SlurmctldHost names this host, which has no agent and is not a node in slurm.conf: nothing "+
			"was checked, because the checks for GPU nodes do not apply to it",
			"run `caelum doctor --controller` on this host and `caelum doctor` on each GPU node. If this host is also "+
				"a GPU node, set `node:` in caelum.yaml to its NodeName in slurm.conf")
		wrong.Check = "host"
		return []Finding{wrong}
	}
	if f.unconverted() {
		none := fault("this cluster is not converted yet: GresTypes in slurm.conf does not include mig, no node has "+
			"slices, and there is no decision table", "convert it with `caelum setup` on slurmctld's host (\"Start\" "+
			"in the installation guide), then run this command again")
		none.Check = "host"
		return []Finding{none}
	}
	return examine(f, checks())
}

// unconverted reports whether nothing in Slurm shows that an administrator has begun to configure Caelum.
func (f *Facts) unconverted() bool {
	return f.Config.Values["GresTypes"] != "" && !f.Config.Has("GresTypes", "mig") && f.lacks(Decisions) &&
		(f.Controller || f.lacks(Agent)) && !slices.ContainsFunc(f.Nodes, slurm.Node.Managed)
}

func examine(f *Facts, checks []check) []Finding {
	var found []Finding
	skipped := map[Source][]string{}
	var judged []Finding
	for _, c := range checks {
		if f.Controller &&
			slices.ContainsFunc(c.needs, func(s Source) bool { return slices.Contains(nodeSources, s) }) {
			continue
		}
		if s, missing := f.firstMissing(c.needs); missing {
			if c.name != string(s) { // the finding for the missing source has the same name as this check
				skipped[s] = append(skipped[s], c.name)
			}
			continue
		}
		faults := c.run(f)
		if len(faults) == 0 && c.okText != "" {
			faults = []Finding{{Severity: OK, Text: c.okText}}
		}
		for _, finding := range faults {
			finding.Check = c.name
			judged = append(judged, finding)
		}
	}
	for _, s := range sources {
		gap, missing := f.Missing[s]
		if !missing || s == OwnNode && f.lacks(Slurmctld) || f.Controller && slices.Contains(nodeSources, s) {
			continue
		}
		gap.Check = string(s)
		if len(skipped[s]) > 0 {
			gap.Text += "; not checked: " + strings.Join(skipped[s], ", ")
		}
		found = append(found, gap)
	}
	return append(found, judged...)
}

// lacks reports whether the source s could not be read.
func (f *Facts) lacks(s Source) bool {
	_, missing := f.Missing[s]
	return missing
}

// firstMissing returns the first source in needs that could not be read, if any.
func (f *Facts) firstMissing(needs []Source) (Source, bool) {
	for _, s := range needs {
		if f.lacks(s) {
			return s, true
		}
	}
	return "", false
}

// Count returns the number of findings with the given severity.
func Count(list []Finding, s Severity) int {
	n := 0
	for _, f := range list {
		if f.Severity == s {
			n++
		}
	}
	return n
}
