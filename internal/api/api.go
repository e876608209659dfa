// Package api is what passes over the agent's Unix socket: wire types, a client and a server.
//
// It is linked into the Go object that the SPANK plugin opens inside Slurm's prolog, so it reaches nothing but
// the standard library: no go-nvml, no SQLite, no viper, no child processes.
package api

// DefaultRunDir holds the agent's socket and the lease files.
const DefaultRunDir = "/run/caelum"

// SocketName is the name of the socket for all users inside the run directory.
const SocketName = "caelumd.sock"

// RootSocketName is the name of root's own socket inside the run directory. Both serve the same calls. A Unix socket
// has one queue of connections that wait to be accepted, and any user can fill that of the socket for all users.
const RootSocketName = "root.sock"

// LeaseRequest is what the prolog knows of a job.
type LeaseRequest struct {
	// Restart is SLURM_JOB_RESTART_COUNT: a requeued job keeps its id.
	Restart   int    `json:"restart"`
	UID       uint32 `json:"uid"`
	GID       uint32 `json:"gid"`
	Partition string `json:"partition,omitempty"`
	// Slots are the indices of gres/gpu that Slurm bound to the job on this node (SLURM_JOB_GPUS).
	Slots []int `json:"slots"`
	// MIG is the value of the submission's --mig, a profile or "auto", empty without one. It comes from the
	// user's environment: its characters and length are checked, nothing else.
	MIG string `json:"mig,omitempty"`
	// Wait is for how many more seconds the plugin is glad of the answer "not now". After that the agent refuses the
	// job, or has it requeued, so that the prolog succeeds. 0: an older plugin, whose prolog then fails.
	Wait float64 `json:"wait,omitempty"`
}

// Slice is a GPU instance with its compute instance as a job holds it.
type Slice struct {
	Slot    int    `json:"slot"`
	GPU     int    `json:"gpu"`
	Profile string `json:"profile"`
	// As is the profile that slurmctld counts it as, where that is another GPU model's that this one has as much as.
	AdvertisedAs string `json:"as,omitempty"`
	// Start and Size are in placement units of the GPU model's grid.
	Start     int    `json:"start"`
	Size      int    `json:"size"`
	MemoryMiB uint64 `json:"memory_mib"`
	UUID      string `json:"uuid"`
	Reused    bool   `json:"reused,omitempty"`
	// Use is what it has in use, in answers to Job and Status; nil if it has not been looked at.
	Use *Use `json:"use,omitempty"`
}

// Use is what a slice of a running job has in use.
type Use struct {
	MemoryMiB float64 `json:"memory_mib"`
	PeakMiB   float64 `json:"peak_mib"` // the most so far
	// Util is the share of its SMs that was busy during the last second, from 0 to 1; -1: the GPU does not tell.
	Util float64 `json:"util"`
	// Processes is how many compute processes the driver shows on it; -1: it does not say.
	Processes int `json:"processes"`
}

// Lease is a job's hold on slices of this node.
type Lease struct {
	Job     uint32 `json:"job"`
	Restart int    `json:"restart"`
	UID     uint32 `json:"uid"`
	Name    string `json:"name,omitempty"`
	User    string `json:"user,omitempty"`
	Account string `json:"account,omitempty"`
	// Key and Work are what job_submit.lua has put into the job's admin_comment, empty if it has not.
	Key         string  `json:"key,omitempty"`
	Fingerprint string  `json:"work,omitempty"`
	Slots       []int   `json:"slots"`
	Slices      []Slice `json:"slices"`
	// Error is the text that task_init shows instead of starting the task.
	Error string `json:"error,omitempty"`
	// Since is when the lease was granted, Unix seconds; End is when Slurm ends the job at the latest, 0 if never.
	Since int64 `json:"since"`
	End   int64 `json:"end,omitempty"`
}

// Status is a node as its agent sees it.
type Status struct {
	Node    string  `json:"node"`
	Version string  `json:"version"`
	GPUs    []GPU   `json:"gpus"`
	Leases  []Lease `json:"leases"`
	// Profiles are those put on offer, by the driver's names, smallest first. Stale are those that slurm.conf gives the
	// node and the driver does not report.
	Profiles []string `json:"profiles"`
	Stale    []string `json:"stale_profiles,omitempty"`
	// Reserved is what is kept free here for the first waiting job that has to wait, if it is to get it here.
	Reserved *Reservation `json:"reserved,omitempty"`
	// Published is what stood in slurmctld when it last was as planned: profile -> total.
	Published map[string]int `json:"published"`
	// PublishedAt is that time, Unix seconds; PublishError is why publishing has failed since.
	PublishedAt  int64  `json:"published_at"`
	PublishError string `json:"publish_error,omitempty"`
	// Closed is why nothing is put on offer: the state in which slurmctld starts nothing here.
	Closed string `json:"closed,omitempty"`
	// Excess is what slurmctld counts as used and has allocated to no job: profile -> count. The published totals have
	// as many more, less ExcessShort, for which the node's total of gres/mig has no room.
	Excess      map[string]int `json:"excess,omitempty"`
	ExcessShort map[string]int `json:"excess_short,omitempty"`
	// SummariesWaiting is how many ended runs have not got their summary into slurmdbd yet.
	SummariesWaiting int `json:"summaries_waiting,omitempty"`
}

// GPU is one GPU of the node.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Model string `json:"model"`
	// Type is the Type= of its slots in gres.conf; Model is the name of the matching table, if any.
	Type      string      `json:"type"`
	Grid      int         `json:"grid"`
	Slots     []int       `json:"slots"`
	Layout    string      `json:"layout"`
	Instances []Instance  `json:"instances"`
	Offers    []Placement `json:"offers"`
	// Problem is empty for a GPU in use, or says why the agent leaves it alone.
	Problem string `json:"problem,omitempty"`
	// Unlisted: the driver did not list the GPU's processes when it was last asked. Idle instances are not reused then.
	Unlisted bool `json:"processes_unlisted,omitempty"`
}

// Placement is a profile at a start.
type Placement struct {
	Profile string `json:"profile"`
	// of an offer: what it is on offer as, where that is another GPU model's profile
	As    string `json:"as,omitempty"`
	Start int    `json:"start"`
	Size  int    `json:"size"`
}

// Reservation is what is kept for a waiting job on a node. Others may have it if they end before.
type Reservation struct {
	Job    uint32          `json:"job"`
	At     int64           `json:"at"` // when the job is expected to start, Unix seconds
	Slices []ReservedSlice `json:"slices"`
}

// ReservedSlice is where it will be.
type ReservedSlice struct {
	GPU int `json:"gpu"`
	Placement
}

// Instance is a GPU instance that exists.
type Instance struct {
	Placement
	GI    int    `json:"gi"`
	UUID  string `json:"uuid,omitempty"`
	State string `json:"state"` // leased, promised (to a job that is starting), idle, foreign, stuck
	Job   uint32 `json:"job,omitempty"`
	// Note names processes, by pid, uid and command, that hold or use it and are not its job's.
	Note string `json:"note,omitempty"`
}

// Problem is the body of every answer that is not 200.
type Problem struct {
	Error string `json:"error"`
}
