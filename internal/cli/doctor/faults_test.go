package doctor

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/decisions"
	"caelum/internal/controller/learn"
	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

var noon = time.Unix(1795233835, 0)

// healthyConfig returns a slurmctld configuration for which no check reports a fault.
func healthyConfig() slurm.Config {
	return slurm.Config{AsOf: noon, Values: map[string]string{
		"PrologFlags":           "Alloc",
		"BatchStartTimeout":     "120 sec",
		"SelectType":            "select/cons_tres",
		"SchedulerType":         "sched/backfill",
		"SchedulerParameters":   "sched_min_interval=0,bf_continue,bf_hetjob_prio=min",
		"GresTypes":             "gpu,mig",
		"SLURM_VERSION":         "22.05.8",
		"AccountingStorageType": "accounting_storage/slurmdbd",
		"AccountingStorageTRES": "cpu,gres/gpu,gres/mig,gres/mig:1g.5gb",
		"TaskPlugin":            "task/cgroup,task/affinity",
		"ConstrainDevices":      "yes",
		"ProctrackType":         "proctrack/cgroup",
	}}
}

// healthyNodes returns this node, which has an A100, and a catalogue node.
func healthyNodes() []slurm.Node {
	return []slurm.Node{
		{
			Name:       "n1",
			Version:    "22.05.8",
			Features:   []string{"a100"},
			States:     []string{"IDLE"},
			Partitions: []string{"gpu", "plain"},
			Gres: []slurm.GRES{
				{Name: "gpu", Type: "a100", Count: 7},
				{Name: "mig", Type: "1g.5gb", Count: 4},
				{Name: "mig", Type: "closed", Count: 24},
			},
			MIGTotal: 28,
		},
		{Name: "mig-catalog1", Features: []string{"a100"}, States: []string{"FUTURE"},
			Partitions: []string{"gpu", "plain"},
			Gres:       []slurm.GRES{{Name: "gpu", Type: "a100", Count: 7}, {Name: "mig", Type: "1g.5gb", Count: 7}}},
	}
}

// healthy returns the facts of a node for which no check reports a fault. It has an A100 with one slice, held by job
// 7 of user 20001.
func healthy() *Facts {
	nodes := healthyNodes()
	return &Facts{
		Missing: map[Source]Finding{},
		RunDir:  "/run/caelum",
		Config:  healthyConfig(),
		Asked:   noon, Answered: noon.Add(time.Second),
		Node:       nodes[0],
		Nodes:      nodes,
		Partitions: []slurm.Partition{{Name: "gpu"}, {Name: "plain"}, {Name: "elsewhere", Exclusive: true}},
		Agent: api.Status{
			Node:        "n1",
			Profiles:    []string{"1g.5gb"},
			PublishedAt: noon.Unix(),
			GPUs: []api.GPU{{UUID: "GPU-1", Slots: []int{0, 1, 2, 3, 4, 5, 6}, Instances: []api.Instance{
				{Placement: api.Placement{Profile: "1g.5gb"}, GI: 7, State: "leased", Job: 7},
			}}},
		},
		Settings:    "lifetime,adaptive",
		Confinement: Confinement{Cgroup: 2, Program: true},
		Table: Table{Path: "/etc/caelum/decisions", Mode: 0o644,
			Table: decisions.Table{
				Partitions: []string{"gpu", "plain"},
				Profiles:   []decisions.Profile{{Name: "1g.5gb", MiB: 4864}},
				MaxNodes:   1,
			}},
		Plugin: Plugin{
			Plugstack:   "/etc/slurm/plugstack.conf",
			Named:       true,
			Required:    true,
			Path:        pluginName,
			File:        "/lib/" + pluginName,
			Version:     22<<16 | 5<<8 | 8,
			Object:      "/lib/" + objectName,
			ObjectFound: true,
		},
		Files: []CapFile{
			{Path: "/dev/nvidia-caps/nvidia-cap66", Mode: 0o400, Owner: 20001, Job: 7, User: 20001},
			{Path: "/dev/nvidia-caps/nvidia-cap75", Mode: 0o400},
		},
	}
}

func set(key, value string) func(*Facts) {
	return func(f *Facts) { f.Config.Values[key] = value }
}

// cases has an entry for each fault, with the check that reports it, the finding's severity, part of its text, and a
// function that adds the fault to a healthy node.
var cases = []struct {
	check    string
	severity Severity
	says     string
	change   func(*Facts)
}{
	{"plan settings", Warning, "but other nodes have a different policy or sizing: n1 (lifetime,tightest). The",
		func(f *Facts) { f.Nodes[0].Extra = "caelum=1 caelum-plan=lifetime,tightest" }},
	{
		"agent",
		Error,
		"cannot publish: slurmctld cannot be reached",
		func(f *Facts) { f.Agent.PublishError = "slurmctld cannot be reached" },
	},
	{"ledger", Error, "job 7 has lost its slice MIG-7 (1g.5gb at 2): the driver no longer lists this instance",
		func(f *Facts) {
			f.Unlisted = []api.Instance{{Placement: api.Placement{Profile: "1g.5gb", Start: 2}, UUID: "MIG-7", Job: 7}}
		}},
	{"slot files", Error, "device files do not exist: /dev/caelum/slot3; slurmd cannot start without them",
		func(f *Facts) { f.NoSlots = []string{"/dev/caelum/slot3"} }},
	{"agent", Warning, "nothing yet", func(f *Facts) { f.Agent.PublishedAt = 0 }},
	{"gpus", Warning, "GPU 1 is not managed: MIG mode is off", func(f *Facts) {
		f.Agent.GPUs = append(f.Agent.GPUs, api.GPU{Index: 1, Problem: "MIG mode is off"})
	}},
	{"gpus", Warning, "These jobs hold slices of this GPU, are not ended by Caelum, and will probably fail or hang: 7",
		func(f *Facts) {
			f.Agent.GPUs = append(f.Agent.GPUs, api.GPU{Index: 1, Problem: gpu.Lost})
			on := func(gpu int) []api.Slice { return []api.Slice{{GPU: gpu}} }
			f.Agent.Leases = []api.Lease{{Job: 7, Slices: on(1)}, {Job: 8, Slices: on(0)}}
		}},
	{"fractions", Error, "no fractions on this node: the driver is older than R615", func(f *Facts) {
		f.Fractions, f.NoFractions = true, "the driver is older than R615; upgrade it"
	}},
	{"fractions", Error, "no fractions on this node: cgroup v1", func(f *Facts) {
		f.Fractions, f.NoFractions = true, "cgroup v1"
	}},
	{"fractions", Info, "divides no l40: no GPU of this node has this type (the types without MIG", func(f *Facts) {
		f.Fractions, f.UnusedTypes = true, gpu.UnusedTypes(map[string]int{"l40": 4}, nil)
	}},
	{"fractions", Warning, "the memory limits of fractions are cooperative", func(f *Facts) {
		f.Fractions, f.SoftMig = true, true
	}},
	{"fractions", Error, "SoftMig finds the processes of a job only in cgroups that are called job_ID", func(f *Facts) {
		f.Fractions, f.SoftMig, f.Config.Values["SLURM_VERSION"] = true, true, "26.05.3"
	}},
	{"fractions", Error, "no fractions on this node: /etc/ld.so.preload does not name", func(f *Facts) {
		f.Fractions, f.SoftMig, f.NoFractions = true, true, "/etc/ld.so.preload does not name SoftMig's library; add it"
	}},
	{"fractions", Error, "ProctrackType is not proctrack/cgroup", func(f *Facts) {
		f.Fractions, f.Config.Values["ProctrackType"] = true, "proctrack/linuxproc"
	}},
	{"gpus", Warning, "GPU 1 is not managed: withdrawn after Xid 95 (uncontained memory error)", func(f *Facts) {
		f.Agent.GPUs = append(f.Agent.GPUs, api.GPU{Index: 1, Problem: gpu.Withdrawn(1, 95)})
	}},
	{"gpus", Warning, "does not list the processes on GPU 0, so the agent destroys and re-creates an idle slice",
		func(f *Facts) { f.Agent.GPUs[0].Unlisted = true }},
	{"instances", Warning, "1g.5gb at 0 on GPU 0: the slice has 16 of 26 SMs", func(f *Facts) {
		f.Agent.GPUs[0].Instances[0].SMs, f.Agent.GPUs[0].Instances[0].MaxSMs = 16, 26
	}},
	{"gpus", Error, "manages no GPU", func(f *Facts) { f.Agent.GPUs[0].Problem = "the GPU is lost" }},
	{"gpus", Error, "manages no GPU", func(f *Facts) { f.Agent.GPUs = nil; f.Node.Gres[0].Count = 0 }},
	{
		"instances",
		Warning,
		"1g.5gb at 0 on GPU 0 is stuck",
		func(f *Facts) { f.Agent.GPUs[0].Instances[0].State = "stuck" },
	},
	{"instances", Warning, `1g.5gb at 0 on GPU 0 is stuck: held open by pid 7, uid 5, "x"; its units`, func(f *Facts) {
		in := &f.Agent.GPUs[0].Instances[0]
		in.State, in.Note = "stuck", `held open by pid 7, uid 5, "x"`
	}},
	{
		"instances",
		Warning,
		"1g.5gb at 0 on GPU 0 is foreign",
		func(f *Facts) { f.Agent.GPUs[0].Instances[0].State = "foreign" },
	},
	{
		"device files",
		Error,
		"of job 7 (user 20001) belongs to user 20002",
		func(f *Facts) { f.Files[0].Owner = 20002 },
	},
	{"device files", Error, "of job 7 (user 20001) has mode 0444", func(f *Facts) { f.Files[0].Mode = 0o444 }},
	{"device files", Error, "is missing: the job cannot", func(f *Facts) { f.Files[0].Missing = true }},
	{"device files", Error, "that no job holds has mode 0444", func(f *Facts) { f.Files[1].Mode = 0o444 }},
	{"device files", Error, "that no job holds belongs to user 20001", func(f *Facts) { f.Files[1].Owner = 20001 }},
	{"prolog", Error, "does not include Alloc", set("PrologFlags", "Contain")},
	{"prolog", Error, "RunInJob", set("PrologFlags", "Alloc,RunInJob")},
	{"batch start", Error, `BatchStartTimeout is "60 sec"`, set("BatchStartTimeout", "60 sec")},
	{"batch start", Error, "may wait 200 s", func(f *Facts) { f.Plugin.Args = map[string]string{"wait": "200"} }},
	{"batch start", Error, `""`, set("BatchStartTimeout", "")},
	{"select", Error, "select/linear", set("SelectType", "select/linear")},
	{"backfill", Warning, "bf_continue", set("SchedulerParameters", "bf_interval=1,bf_hetjob_prio=min")},
	{"preemption", Warning, "PreemptMode=GANG,SUSPEND suspends", func(f *Facts) {
		set("PreemptType", "preempt/partition_prio")(f)
		set("PreemptMode", "GANG,SUSPEND")(f)
	}},
	{"preemption", Warning, "partition gpu has PreemptMode=SUSPEND", func(f *Facts) {
		set("PreemptType", "preempt/partition_prio")(f)
		set("PreemptMode", "REQUEUE")(f)
		f.Partitions = slices.Clone(f.Partitions)
		f.Partitions[0].PreemptMode = "SUSPEND"
	}},
	{"preemption", Info, "but only for slices of the same profile: preempt is false", func(f *Facts) {
		set("PreemptType", "preempt/partition_prio")(f)
		set("PreemptMode", "REQUEUE")(f)
	}},
	{"preemption", OK, "the watcher may stop jobs for other profiles", func(f *Facts) {
		set("PreemptType", "preempt/qos")(f)
		set("PreemptMode", "REQUEUE")(f)
		f.Preempt = true
	}},
	{"moves", Warning, "the agents do not publish which jobs", func(f *Facts) {
		f.MovesPerDay = 4
		set("PrivateData", "jobs,usage")(f)
	}},
	{"moves", Warning, `move_partitions names "gone"`, func(f *Facts) {
		f.MovesPerDay, f.MovePartitions = 4, []string{"gpu", "gone"}
	}},
	{"het jobs", Warning, "bf_hetjob_prio=min", set("SchedulerParameters", "bf_continue,bf_hetjob_prio=max")},
	{"gres types", Error, "does not include mig", set("GresTypes", "gpu")},
	{"gres types", Error, "does not include gpu", set("GresTypes", "mig")},
	{"accounting", Warning, "does not include gres/mig", set("AccountingStorageTRES", "cpu,gres/mig:1g.5gb")},
	{"accounting", Info, "without slurmdbd", set("AccountingStorageType", "accounting_storage/none")},
	{"clock", Warning, "differ by 1m0s", func(f *Facts) { f.Config.AsOf = noon.Add(-time.Minute) }},
	{"clock", Warning, "differ by 59s", func(f *Facts) { f.Config.AsOf = noon.Add(time.Minute) }},
	{"clock", Warning, "not compared", func(f *Facts) { f.Config.AsOf = time.Time{} }},
	{
		"node",
		Warning,
		"n1 is DRAIN (Prolog error)",
		func(f *Facts) { f.Node.States, f.Node.Reason = []string{"IDLE", "DRAIN"}, "Prolog error" },
	},
	{"closed", Error, "record of n1 has no gres/mig:closed", func(f *Facts) { f.Node.Gres[2].Type = "other" }},
	{
		"total",
		Error,
		"adds up to 27 on n1, but the node's 7 slots need 28",
		func(f *Facts) { f.Node.Gres[2].Count, f.Node.MIGTotal = 23, 27 },
	},
	{
		"total",
		Error,
		"adds up to 27 on n1, but the node's 7 slots need 28",
		func(f *Facts) { f.Node.Gres[2].Count, f.Node.MIGTotal = 23, 0 },
	},
	{
		"total",
		Error,
		"adds up to 34 on n1, but to 28 in slurm.conf: slurmctld will drain",
		func(f *Facts) { f.Node.Gres[2].Count = 30 },
	},
	{
		"total",
		Error,
		"adds up to 22 on n1, but to 28 in slurm.conf: slurmctld will drain",
		func(f *Facts) { f.Node.Gres[2].Count = 18 },
	},
	{"total", Info, "the sum was not compared with slurm.conf", func(f *Facts) { f.Node.MIGTotal = 0 }},
	{
		"total",
		Warning,
		"adds up to 32 on n1, but to 28 in slurm.conf: slurmd has restarted",
		func(f *Facts) { f.Node.Gres[2].Count = 28 },
	},
	{
		"used",
		Warning,
		"slices of n1 that no job holds: 2 of 1g.5gb, 1 of 7g.40gb",
		func(f *Facts) { f.Agent.Excess = map[string]int{"7g.40gb": 1, "1g.5gb": 2} },
	},
	{"used", Error, "to compensate for 40 of 1g.5gb", func(f *Facts) {
		f.Agent.Excess, f.Agent.ExcessShort = map[string]int{"1g.5gb": 50}, map[string]int{"1g.5gb": 40}
	}},
	{
		"slots",
		Error,
		"hold up to 8 slices",
		func(f *Facts) { f.Agent.GPUs[0].Slots = append(f.Agent.GPUs[0].Slots, 7) },
	},
	{"slots", Error, "hold only 6 slices", func(f *Facts) { f.Agent.GPUs[0].Slots = f.Agent.GPUs[0].Slots[1:] }},
	{"partitions", Warning, "plain has OverSubscribe=EXCLUSIVE", func(f *Facts) { f.Partitions[1].Exclusive = true }},
	{"catalogue", Error, "slurm.conf contains no catalogue node", func(f *Facts) { f.Nodes = f.Nodes[:1] }},
	{
		"catalogue",
		Error,
		"mig-catalog1 is IDLE instead of FUTURE",
		func(f *Facts) { f.Nodes[1].States = []string{"IDLE"} },
	},
	{
		"catalogue",
		Warning,
		"mig-catalog1 is DOWN instead of FUTURE: sreport counts it as down",
		func(f *Facts) { f.Nodes[1].States = []string{"DOWN", "NOT_RESPONDING"} },
	},
	{
		"catalogue",
		Error,
		"no partition of n1 (gpu, plain)",
		func(f *Facts) { f.Nodes[1].Partitions = []string{"elsewhere"} },
	},
	{"plugin", Error, "does not name", func(f *Facts) { f.Plugin.Named = false }},
	{
		"resources",
		Warning,
		"(the closest, mig-catalog1, lacks Features=big, Features=nvlink)",
		func(f *Facts) { f.Node.Features = []string{"a100", "big", "nvlink"} },
	},
	{"features", Warning, "mig-catalog1 has the features a100, big, but no real node has all of them", func(f *Facts) {
		other := f.Nodes[0]
		other.Name, other.Features = "n2", []string{"big"}
		f.Nodes = append(f.Nodes, other)
		f.Nodes[1].Features = []string{"a100", "big"}
	}},
	{
		"features",
		Warning,
		"mig-catalog1 has the features h100, which no real node has",
		func(f *Facts) { f.Nodes[1].Features = []string{"a100", "h100"} },
	},
	{
		"profiles",
		Error,
		"slurm.conf gives n1 the profiles 1g.23gb, which the node's driver does not report (it reports 1g.5gb)",
		func(f *Facts) { f.Agent.Stale = []string{"1g.23gb"} },
	},
	{"resources", Warning, "no catalogue node has all resources of n1 (the closest, mig-catalog1, lacks nvme:3000)",
		func(f *Facts) { f.Node.Gres = append(f.Node.Gres, slurm.GRES{Name: "nvme", Count: 3000}) }},
	{"resources", Warning, "lacks CPUs=64, RealMemory=256000, TmpDisk=100, ThreadsPerCore=2)", func(f *Facts) {
		f.Node.CPUs, f.Node.Memory, f.Node.TmpDisk, f.Node.ThreadsPerCore = 64, 256000, 100, 2
		f.Nodes[1].CPUs, f.Nodes[1].Memory, f.Nodes[1].ThreadsPerCore = 32, 128000, 1
	}},
	{"mixed partitions", Warning, "n2 shares a partition with n1, but Caelum does not manage it, and it has no " +
		"gres/mig counts of 1g.5gb", func(f *Facts) {
		f.Nodes = append(f.Nodes, slurm.Node{Name: "n2", Partitions: []string{"gpu"},
			Gres: []slurm.GRES{{Name: "gpu", Type: "v100", Count: 2}}})
	}},
	{"mixed partitions", Info, "gets a whole GPU on n2, and a slice on the other nodes", func(f *Facts) {
		f.Nodes = append(f.Nodes, slurm.Node{Name: "n2", Partitions: []string{"gpu"},
			Gres: []slurm.GRES{{Name: "gpu", Count: 2}, {Name: "mig", Type: "1g.5gb", Count: 2}}})
	}},
	{"unlisted partitions", Warning, "/etc/caelum/decisions does not list plain, although",
		func(f *Facts) { f.Table.Partitions = []string{"gpu"} }},
	{"profiles", Error, "no catalogue node has slices of 1g.6gb, but n1 does", func(f *Facts) {
		f.Agent.Profiles = []string{"1g.6gb"}
		f.Config.Values["AccountingStorageTRES"] += ",gres/mig:1g.6gb"
	}},
	{"profiles", Warning, "AccountingStorageTRES does not include 1g.5gb", set("AccountingStorageTRES", "gres/mig")},
	{
		"decision table",
		Error,
		"/etc/caelum/decisions: line 2 is not valid",
		func(f *Facts) { f.Table.Problem = "line 2 is not valid" },
	},
	{"decision table", Error, "runs as nobody and cannot read /etc/caelum/decisions (mode 0600)", func(f *Facts) {
		f.Config.Values["SlurmUser"], f.Table.Mode = "nobody(65534)", 0o600
	}},
	{"decision table", Error, "no partition", func(f *Facts) { f.Table.Partitions = nil }},
	{
		"decision table",
		Warning,
		"partition big, which is not in slurm.conf",
		func(f *Facts) { f.Table.Partitions = []string{"gpu", "plain", "big"} },
	},
	{
		"decision table",
		Error,
		"max_nodes is 2 in /etc/caelum/decisions, but the number of catalogue nodes in partition gpu is 1: slurmctld",
		func(f *Facts) { f.Table.MaxNodes = 2 },
	},
	{
		"decision table",
		Error,
		"partition elsewhere of /etc/caelum/decisions has no catalogue node",
		func(f *Facts) { f.Table.Partitions = []string{"elsewhere", "gpu", "plain"} },
	},
	{"decision table", Info, "job_submit.lua holds jobs", func(f *Facts) { f.Nodes = append(f.Nodes, f.Nodes[1]) }},
	{
		"decision table",
		Error,
		"lists 1g.6gb, but no catalogue node in the table's partitions has",
		func(f *Facts) { f.Table.Profiles = append(f.Table.Profiles, decisions.Profile{Name: "1g.6gb"}) },
	},
	{"decision table", Warning, "ignored 3 key lines because of a", func(f *Facts) { f.Table.OldKeys = 3 }},
	{"decision table", Warning, "to the partition elsewhere: new jobs get no slices",
		func(f *Facts) { f.Table.Bypass = "elsewhere" }},
	{"decision table", Error, "to the partition whole, which is not in slurm.conf",
		func(f *Facts) { f.Table.Bypass = "whole" }},
	{"decision table", Error, "to the partition plain, but Caelum manages its node n1",
		func(f *Facts) { f.Table.Bypass = "plain" }},
	{"decision table", Warning, "rejects jobs with --mig-mem", func(f *Facts) { f.Table.Profiles[0].MiB = 0 }},
	{"decision table", Warning, "contains 2g.10gb, which /etc/caelum/decisions does not list", func(f *Facts) {
		f.Nodes[1].Gres = append(f.Nodes[1].Gres, slurm.GRES{Name: "mig", Type: "2g.10gb", Count: 3})
	}},
	{"release", Error, "Slurm 21.08, but Caelum needs 22.05", set("SLURM_VERSION", "21.08.8")},
	{"release", Warning, "Slurm 26.11, but this version", set("SLURM_VERSION", "26.11.0")},
	{"release", Warning, "release cannot be read", set("SLURM_VERSION", "main")},
	{"release", Error, "accepts only JSON in a node's Extra", func(f *Facts) {
		f.Config.Values["SLURM_VERSION"] = "23.11.1"
		f.Config.Values["SchedulerParameters"] += ",extra_constraints"
	}},
	{"release", Warning, "NamespaceType is namespace/linux", set("NamespaceType", "namespace/linux")},
	{"reconfigure", Info, "slurmd waits 5 s for running prologs, but a prolog may wait 60 s", func(f *Facts) {
		f.Config.Values["SLURM_VERSION"], f.Config.Values["MessageTimeout"] = "23.11.1", "10 sec"
		f.Config.Values["PrologEpilogTimeout"] = "120" // 23.11 ignores this value
	}},
	{"reconfigure", Info, "slurmd waits 30 s for running prologs", func(f *Facts) {
		f.Config.Values["SLURM_VERSION"], f.Config.Values["MessageTimeout"] = "24.11.5", "30 sec"
		f.Config.Values["PrologEpilogTimeout"] = "65534"
	}},
	{"driver", Warning, "ModifyDeviceFiles is 1", func(f *Facts) { f.Driver.Modifies = true }},
	{"capability files", Error, "nvidia-cap0 (nvidia-nvlink/capabilities/fabric-mgmt) does not exist: on systems with",
		func(f *Facts) {
			f.Driver.General = []GeneralFile{{Missing: true,
				Capability: gpu.Capability{Name: gpu.FabricMgmt, Path: "/dev/nvidia-caps/nvidia-cap0"}}}
		}},
	{"capability files", Warning, "nvidia-cap2 (nvidia/capabilities/mig/monitor) has mode 0444: every user can read",
		func(f *Facts) {
			f.Driver.General = []GeneralFile{{Mode: 0o444,
				Capability: gpu.Capability{Name: gpu.MIGMonitor, Path: "/dev/nvidia-caps/nvidia-cap2"}}}
		}},
	{"memory", Error, "RMDisableScrubOnFree is set", func(f *Facts) { f.Driver.Unscrubbed = true }},
	{
		"driver",
		Error,
		"cannot use this node's GPUs without /dev/nvidiactl",
		func(f *Facts) { f.Driver.Missing = []string{"/dev/nvidiactl"} },
	},
	{"plugin", Error, "which does not exist", func(f *Facts) { f.Plugin.File = "" }},
	{"plugin", Error, "optional", func(f *Facts) { f.Plugin.Required = false }},
	{
		"plugin",
		Error,
		"built for Slurm 24.11, but slurmd 22.05.8 runs here",
		func(f *Facts) { f.Plugin.Version = 24<<16 | 11<<8 },
	},
	{
		"plugin",
		Error,
		"built for Slurm 22.05, but slurmd 21.08.8 runs here",
		func(f *Facts) { f.Node.Version = "21.08.8" },
	},
	{
		"plugin",
		Error,
		"built for Slurm 24.11, but Slurm 22.05.8 runs",
		func(f *Facts) { f.Plugin.Version, f.Node.Version = 24<<16|11<<8, "" },
	},
	{"plugin", Error, "not a Slurm plugin: bad magic", func(f *Facts) {
		f.Plugin.Version, f.Plugin.Problem = 0, "bad magic"
	}},
	{"plugin", Error, "the prolog of each job with slices fails", func(f *Facts) { f.Plugin.ObjectFound = false }},
	{
		"plugin",
		Error,
		"looks for the agent in /run/other",
		func(f *Facts) { f.Plugin.Args = map[string]string{"run_dir": "/run/other"} },
	},
	{"plugin", Error, "looks for the agent in /run/caelum", func(f *Facts) { f.RunDir = "/run/other" }},
	{"isolation", Warning, "this host has no devices cgroup", func(f *Facts) { f.Confinement = Confinement{} }},
	{
		"isolation",
		Warning,
		"not permitted",
		func(f *Facts) { f.Confinement = Confinement{Cgroup: 2, Tasks: true, Problem: "not permitted"} },
	},
	{
		"isolation",
		Warning,
		"BPF program is not attached",
		func(f *Facts) { f.Confinement = Confinement{Cgroup: 2, Tasks: true} },
	},
	{"isolation", Info, "not known yet", func(f *Facts) { f.Confinement = Confinement{Cgroup: 2} }},
	{"isolation", Warning, "ConstrainDevices is not yes", set("ConstrainDevices", "no")},
	{"isolation", Warning, "TaskPlugin does not include", set("TaskPlugin", "task/affinity")},
	{"learning", Warning, "the watcher cannot write /etc/caelum/decisions", func(f *Facts) {
		f.Controller, f.Learn = true, true
		set("SlurmUser", "slurm(64030)")(f)
	}},
	{"learning", OK, "", func(f *Facts) {
		f.Controller, f.Learn, f.Table.Folder = true, true, 64030
		set("SlurmUser", "slurm(64030)")(f)
	}},
	{"learning", OK, "", func(f *Facts) {
		f.Controller, f.Learn, f.Table.Site = true, true, map[string]predict.Line{"0123456789abcdef": {}}
		set("SlurmUser", "slurm(64030)")(f)
	}},
	{"learning", Warning, "learn is false", func(f *Facts) { f.Controller = true }},
	{"learning", OK, "", func(f *Facts) { // caelum repo sync runs in a crontab
		learned(f)
		f.Learn, f.Learning.Synced = false, noon.Add(-23*time.Hour)
	}},
	{"learning", Info, "has no slurmdbd", func(f *Facts) {
		learned(f)
		f.Config.Values["AccountingStorageType"] = "accounting_storage/none"
	}},
	{"learning", OK, "", learned},
	{"learning", Info, "could not be checked: no disk", func(f *Facts) {
		learned(f)
		f.Learning.Problem = "no disk"
	}},
	{"learning", Warning, "has not begun", func(f *Facts) {
		learned(f)
		f.Learning = Learning{Now: noon}
	}},
	{"learning", Warning, "learning has stopped: slurmdbd was last read on ", func(f *Facts) {
		learned(f)
		f.Learning.Synced = noon.Add(-61 * time.Minute)
	}},
	{"learning", Warning, "nothing in the last day: the 3 runs", func(f *Facts) {
		learned(f)
		f.Learning.Newest = noon.Add(-25 * time.Hour)
	}},
	{"learning", OK, "", func(f *Facts) { // no run ended
		learned(f)
		f.Learning.Newest, f.Learning.Ended = noon.Add(-25*time.Hour), 0
	}},
	{
		"wake port",
		Warning,
		"the wake port is not open",
		func(f *Facts) { f.Notify = Notify{Port: 6873, Path: "/etc/caelum/wake.key", Err: fs.ErrNotExist} },
	},
	{
		"limits",
		Info,
		"gres/gpu=4; Slurm does not enforce these limits",
		func(f *Facts) { f.Limits = []string{"account research GrpTRES gres/gpu=4"} },
	},
	{
		"limits",
		Info,
		"account research GrpTRES gres/gpu=4",
		func(f *Facts) { f.Limits = []string{"account research GrpTRES gres/gpu=4"} },
	},
	{
		"whole GPUs",
		Warning,
		"unless gres.conf names the file, any job",
		func(f *Facts) { f.Unmanaged = []UnmanagedGPU{{Index: 1, Path: "/dev/nvidia1", Mode: 0o666}} },
	},
	{"owners", Error, "/etc/caelum: /etc/caelum belongs to slurm, not to root: root's processes", func(f *Facts) {
		f.Owners.Untrusted = []string{
			"couldn't use /etc/caelum: /etc/caelum belongs to slurm, not to root; chown root /etc/caelum",
		}
	}},
	{
		"owners",
		Error,
		"/run/caelum/jobs: its owner is uid 20001 instead of uid 0, and its mode is 0755 instead of 0700: other users",
		func(f *Facts) { f.Owners.Wrong = []WrongFile{{"/run/caelum/jobs", 20001, 0o755, 0o700}} },
	},
	{"owners", Error, "/run/caelum/jobs: its mode is 0755 instead of 0700: other users", func(f *Facts) {
		f.Owners.Wrong = []WrongFile{{"/run/caelum/jobs", 0, 0o755, 0o700}}
	}},
	{"owners", Warning, "caelumd.service has DevicePolicy=auto", func(f *Facts) { f.Owners.Unit = "auto" }},
}

// learned makes f the facts of slurmctld's host, on which learning works.
func learned(f *Facts) {
	f.Controller, f.Learn = true, true
	f.Learning = Learning{
		State: learn.State{Runs: 9, First: noon.AddDate(0, -1, 0), Newest: noon.Add(-time.Hour), Synced: noon},
		Now:   noon.Add(time.Minute), Ended: 3,
	}
}

func TestEachFault(t *testing.T) {
	for _, c := range cases {
		f := healthy()
		c.change(f)
		i := slices.IndexFunc(Examine(f), func(g Finding) bool {
			return g.Check == c.check && g.Severity == c.severity && strings.Contains(g.Text, c.says)
		})
		if i < 0 {
			t.Errorf("no finding of check %q has the severity %s and the text %q: %+v", c.check, c.severity, c.says,
				Examine(f))
			continue
		}
		for _, g := range Examine(f) {
			if (g.Severity == Error || g.Severity == Warning) == (g.Next == "") {
				t.Errorf("errors and warnings must have a remedy, and other findings must have none: %+v", g)
			}
			if (g.Severity == Error || g.Severity == Warning) && g.Check != c.check {
				t.Errorf("the fault %q of check %q causes another finding: %+v", c.says, c.check, g)
			}
		}
	}
}

// TestFractionsUnconfined tests a node with fractions on which Slurm does not confine tasks.
func TestFractionsUnconfined(t *testing.T) {
	f := healthy()
	f.Fractions, f.Config.Values["ConstrainDevices"] = true, "no"
	found := fractions(f)
	if len(found) != 1 || found[0].Severity != Error || !strings.Contains(found[0].Text, "does not confine tasks") {
		t.Errorf("%+v", found)
	}
}

// TestEachCheckCanFail tests that cases has at least one entry for each check.
func TestEachCheckCanFail(t *testing.T) {
	can := map[string]bool{}
	for _, c := range cases {
		can[c.check] = true
	}
	for _, c := range checks() {
		if !can[c.name] {
			t.Errorf("cases has no entry for the check %q", c.name)
		}
	}
}
