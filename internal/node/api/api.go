package api

// DefaultRunDir is the default run directory, which holds the agent's sockets and the lease files.
const DefaultRunDir = "/run/caelum"

// SocketName is the name, in the run directory, of the socket for all users.
const SocketName = "caelumd.sock"

// RootSocketName is the name, in the run directory, of the socket for root. This socket serves the same calls. Root
// needs a separate socket because a Unix socket has a single queue of connections that have not been accepted yet, and
// any user can fill the queue of the socket for all users.
const RootSocketName = "root.sock"

// LeaseRequest describes the job for which a prolog requests a lease.
type LeaseRequest struct {
	// Restart is SLURM_JOB_RESTART_COUNT. It distinguishes the runs of a requeued job, which all have the same job id.
	Restart   int    `json:"restart"`
	UID       uint32 `json:"uid"`
	GID       uint32 `json:"gid"`
	Partition string `json:"partition,omitempty"`
	// Slots lists the indices of the gres/gpu slots that Slurm has bound to the job on this node (SLURM_JOB_GPUS).
	Slots []int `json:"slots"`
	// MIG is the value of --mig at submission (a profile or "auto"), or empty if the option was not given. It comes
	// from the user's environment, and only its characters and length have been checked.
	MIG string `json:"mig,omitempty"`
	// SLUID is SLURM_JOB_SLUID, which identifies this run of the job, or empty. Slurm sets it since 25.11, and since
	// 26.05 names the job's cgroup by it, unless cgroup.conf has CgroupJobIdPaths=yes.
	SLUID string `json:"sluid,omitempty"`
	// Wait is the time, in seconds, for which the plugin will keep repeating the request after status 503. When this
	// time has passed, the agent requeues the job or writes an error into its lease file, so that the prolog succeeds.
	// Plugins from earlier releases do not send it; it is then 0, and the prolog fails instead.
	Wait float64 `json:"wait,omitempty"`
}

// Slice is a GPU instance that a job holds, together with its compute instance.
type Slice struct {
	Slot    int    `json:"slot"`
	GPU     int    `json:"gpu"`
	Profile string `json:"profile"`
	// AdvertisedAs is the profile of another GPU model under whose name slurmctld counts the slice; Profile is then
	// this GPU model's equivalent profile. It is empty if slurmctld counts the slice under Profile.
	AdvertisedAs string `json:"as,omitempty"`
	// Start and Size are in placement units of the GPU model's grid.
	Start     int    `json:"start"`
	Size      int    `json:"size"`
	MemoryMiB uint64 `json:"memory_mib"`
	UUID      string `json:"uuid"`
	Reused    bool   `json:"reused,omitempty"`
	// Use is the last usage sample, or nil if there is none yet. It is set only in the replies to Job and Status.
	Use *Use `json:"use,omitempty"`
}

// Use is the usage of one slice of a running job.
type Use struct {
	MemoryMiB float64 `json:"memory_mib"`
	PeakMiB   float64 `json:"peak_mib"` // the highest value of MemoryMiB so far
	// Util is the fraction of the slice's SMs that were busy during the last second, from 0 to 1, or -1 if the GPU does
	// not report utilisation.
	Util float64 `json:"util"`
	// Processes is the number of compute processes on the slice, or -1 if the driver does not report this number.
	Processes int `json:"processes"`
	// ForecastMiB is the expected peak at the end of the run, or 0 if there is no forecast. Exceeds is true if the
	// agent is certain that the peak will exceed the slice's memory.
	ForecastMiB float64 `json:"forecast_mib,omitempty"`
	Exceeds     bool    `json:"exceeds,omitempty"`
}

// Lease records that a job holds slices on this node.
type Lease struct {
	Job     uint32 `json:"job"`
	Restart int    `json:"restart"`
	UID     uint32 `json:"uid"`
	Name    string `json:"name,omitempty"`
	User    string `json:"user,omitempty"`
	Account string `json:"account,omitempty"`
	// Key and Fingerprint are the job key and the script fingerprint that job_submit.lua has written into the job's
	// admin_comment. They are empty if it has not written them.
	Key         string  `json:"key,omitempty"`
	Fingerprint string  `json:"work,omitempty"`
	Slots       []int   `json:"slots"`
	Slices      []Slice `json:"slices"`
	// Cgroup is the job's cgroup, whose GPU memory is limited. It is set if the job has a part of a GPU with fractions.
	Cgroup Cgroup `json:"cgroup,omitzero"`
	// Error is the message that task_init prints, or empty if there is none. If there is one, the task does not start.
	Error string `json:"error,omitempty"`
	// Since is the time at which the lease was granted. End is the latest time at which Slurm will end the job, or 0 if
	// there is no time limit. Both are in Unix seconds.
	Since int64 `json:"since"`
	End   int64 `json:"end,omitempty"`
	// Expected is the run time on the job's slices, in seconds, that was predicted from earlier runs, or 0.
	Expected int `json:"expected,omitempty"`
	// Grow determines when the agent requeues the job on a larger slice: "oom" after it has failed because it ran out
	// of memory, and "forecast" also before this happens. If it is empty, the job never grows.
	Grow string `json:"grow,omitempty"`
	// Xids lists the Xid errors on the job's slices, for example "13x3+31" for three times Xid 13 and one Xid 31. It is
	// set only in the replies to Job and Status.
	Xids string `json:"xids,omitempty"`
	// Recovered is true if the lease was restored from its lease file and the agent has not yet read from slurmctld
	// what the lease file does not contain: the fields from Name to Fingerprint, End, Expected and Grow.
	Recovered bool `json:"recovered,omitempty"`
}

// Cgroup identifies the cgroup of a job. A later cgroup with the same path has a different inode.
type Cgroup struct {
	// Path is the absolute path of the directory, such as /sys/fs/cgroup/system.slice/slurmstepd.scope/job_7.
	Path string `json:"path"`
	// Inode is the inode number of the directory.
	Inode uint64 `json:"inode"`
}

// GrowForecast is the value of Lease.Grow for a job that the agent may requeue before it fails.
const GrowForecast = "forecast"

// Status is a node's state according to its agent.
type Status struct {
	Node    string  `json:"node"`
	Version string  `json:"version"`
	GPUs    []GPU   `json:"gpus"`
	Leases  []Lease `json:"leases"`
	// Profiles lists the profiles that the agent offers, under the driver's names, from small to large. Stale lists the
	// profiles that slurm.conf lists for the node but that the driver does not report.
	Profiles []string `json:"profiles"`
	Stale    []string `json:"stale_profiles,omitempty"`
	// Reserved describes the slices on this node that are reserved for the first job that has to wait, or is nil if no
	// slices are reserved.
	Reserved *Reservation `json:"reserved,omitempty"`
	// Published maps each profile to its total in slurmctld after the last successful pass.
	Published map[string]int `json:"published"`
	// PublishedAt is the time of the last successful pass in Unix seconds. PublishError is the last pass's error, or
	// empty if the pass succeeded.
	PublishedAt  int64  `json:"published_at"`
	PublishError string `json:"publish_error,omitempty"`
	// Closed is the node's state if this state prevents slurmctld from starting jobs there, in which case the agent
	// offers nothing. Otherwise, Closed is empty.
	Closed string `json:"closed,omitempty"`
	// Excess is, for each profile, the number of slices that slurmctld counts as used even though no job holds them. To
	// compensate, the agent has raised the published totals by Excess minus ExcessShort, which is the part that does
	// not fit into the node's gres/mig total.
	Excess      map[string]int `json:"excess,omitempty"`
	ExcessShort map[string]int `json:"excess_short,omitempty"`
	// Deaf is the reason why the agent cannot receive notifications from the watcher, or empty.
	Deaf string `json:"notifications_error,omitempty"`
	// SummariesWaiting is the number of finished runs whose summaries have not reached slurmdbd yet.
	SummariesWaiting int `json:"summaries_waiting,omitempty"`
}

// GPU is one of the node's GPUs.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Model string `json:"model"`
	// Type is the Type of the GPU's slots in gres.conf. Grid is the GPU's number of placement units. Both are unset if
	// the agent does not support the GPU model.
	Type      string      `json:"type"`
	Grid      int         `json:"grid"`
	Slots     []int       `json:"slots"`
	Layout    string      `json:"layout"`
	Instances []Instance  `json:"instances"`
	Offers    []Placement `json:"offers"`
	// Problem is the reason why the agent does not manage the GPU, or empty if it does.
	Problem string `json:"problem,omitempty"`
	// Xids lists the Xid errors that the driver has reported for the GPU since the agent started, one entry per code.
	Xids []XidCount `json:"xids,omitempty"`
	// Held is the reason why the agent cannot switch MIG mode off, or empty if it can.
	Held string `json:"held,omitempty"`
	// Unlisted is true if the driver failed to list the GPU's processes the last time it was asked for them. The agent
	// then does not reuse idle instances.
	Unlisted bool `json:"processes_unlisted,omitempty"`
}

// XidCount describes the Xid errors of one kind on a GPU.
type XidCount struct {
	Xid   int    `json:"xid"`
	Text  string `json:"text"` // for example "Xid 31 (memory page fault)"
	Fatal bool   `json:"fatal,omitempty"`
	Count int    `json:"count"`
	At    int64  `json:"at"` // the time of the last one, in Unix seconds
	// On is the slice with the last one, for example "1g.5gb at 3", and Job is the job that held it. They are empty if
	// the driver did not assign the error to a slice, or if no job held the slice.
	On  string `json:"on,omitempty"`
	Job uint32 `json:"job,omitempty"`
}

// Placement is a profile at a position in a GPU's grid. Start and Size are in placement units.
type Placement struct {
	Profile string `json:"profile"`
	// As is the profile of another GPU model under which slurmctld counts the slice, or empty if it counts the slice
	// under Profile.
	As    string `json:"as,omitempty"`
	Start int    `json:"start"`
	Size  int    `json:"size"`
}

// Reservation describes the slices on a node that are reserved for a waiting job. Other jobs may use them if they end
// before the waiting job's expected start.
type Reservation struct {
	Job    uint32          `json:"job"`
	At     int64           `json:"at"` // the job's expected start, in Unix seconds
	Slices []ReservedSlice `json:"slices"`
}

// ReservedSlice is the placement of one reserved slice.
type ReservedSlice struct {
	GPU int `json:"gpu"`
	Placement
}

// Instance is an existing GPU instance.
type Instance struct {
	Placement
	GI    int    `json:"gi"`
	UUID  string `json:"uuid,omitempty"`
	State string `json:"state"` // one of the following states
	Job   uint32 `json:"job,omitempty"`
	// SMs is the number of SMs of the instance's compute instance, and MaxSMs the number of SMs that a compute instance
	// of the full size has. Both are 0 if they are unknown, and for a full GPU.
	SMs    int `json:"sms,omitempty"`
	MaxSMs int `json:"max_sms,omitempty"`
	// Note lists the processes that are using the instance but do not belong to its job, with their pids, uids and
	// commands.
	Note string `json:"note,omitempty"`
}

// Short reports whether the compute instance has fewer SMs than a compute instance of the full size.
func (in Instance) Short() bool { return in.SMs < in.MaxSMs }

// These constants are the states of an instance.
const (
	StateLeased   = "leased"
	StatePromised = "promised" // reserved by the pending lease of a job that is starting
	StateIdle     = "idle"
	StateForeign  = "foreign" // created by another program
	StateStuck    = "stuck"   // not reused, because a process outside any job is using it or because its removal failed
)

// Problem is the body of every reply with a status other than 200.
type Problem struct {
	Error string `json:"error"`
}
