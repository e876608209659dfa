package config

import (
	"os"
	"strings"

	"caelum/internal/controller/repo"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// Services is the set of services that read a key when they start. An administrator restarts them after a change of the
// key. The commands read the file each time that they run.
type Services string

// These constants are the values of Services.
const (
	Agent   Services = "caelumd"
	Watcher Services = "caelum-watch"
	Both    Services = "both"
)

// Key describes a key of caelum.yaml. TestPage writes the descriptions to docs/configure.md.
type Key struct {
	Name    string
	Default any
	// Unset describes the default in the documentation if the value does not: the host's name, or an empty value.
	Unset string
	// Values describes the valid values. If the default is not a string, an error for a value of another type contains
	// it.
	Values  string
	Restart Services
	// Meaning says in at most 250 characters what the key does. It may contain Markdown, but no links.
	Meaning string
	// Page is the page that explains the key, relative to docs, with the anchor of the section.
	Page string
}

// aTime is the beginning of Key.Values of all keys whose value is a time.
const aTime = "a time with a unit"

const (
	trueOrFalse = "true or false"
	aPath       = "an absolute path"
	aPathOrNone = `an absolute path, or ""`
)

// keys contains all keys, in the order of the documentation.
var keys = []Key{
	{"node", hostname(), "the host's name, up to the first dot", "the name of a node in slurm.conf", Both,
		"The NodeName of this host in slurm.conf. On slurmctld's host, a name for the watcher.", "install.md"},
	{"run_dir", api.DefaultRunDir, "", aPath, Agent,
		"The directory of the socket and of the lease files. Also change `metrics_file`, `run_dir=` in " +
			"plugstack.conf, the `--run-dir` option, ReadWritePaths in the unit, and tmpfiles.d.",
		"install.md#plugstackconf"},
	{"state_dir", "/var/lib/caelum", "", aPath, Agent, "The directory of the ledger.", "internals.md"},
	{"device_dir", "/dev", "", aPath, Agent,
		"The directory that contains `caelum/slot*` and `nvidia-caps/`.",
		"configure/isolation.md"},
	{"nvml_library", "", "the linker finds it", "a path", Agent,
		"The path of libnvidia-ml.so.1. Set it if the linker does not find the file.",
		"configure/isolation.md#files-that-only-root-may-change"},
	{"profiles", []string{}, "all without + or -",
		"a list of profiles (example: [1g.5gb, 2g.10gb])", Agent,
		"The profiles that the agent offers; by default, all except the variants with media engines or graphics. " +
			"Run `caelum slurm-config` again after a change.",
		"install.md#upgrade"},
	{"default_profile", "", "the largest", "a profile", Agent,
		"The profile with which the agent requeues a job that starts without a slice because the decision " +
			"table does not list its partition.", "configure/decision-table.md"},
	{"fractions", map[string]int{}, "none", "numbers of units, 2 to 12, by GPU type (example: {l40s: 4})", Agent,
		"For each type of GPU without MIG, the number of equal units into which its memory is divided. The driver " +
			"must support memory limits; otherwise, jobs get whole GPUs.", "configure/fractions.md"},
	{"fraction_limits", LimitsDriver, "", "driver or softmig", Agent,
		"What limits the memory of jobs with fractions: the NVIDIA driver, or the library of SoftMig, which users " +
			"can evade. Change it only while no job holds a fraction.",
		"configure/fractions.md#older-drivers-and-v100-softmig"},
	{"whole_gpus", "never", "", "never, auto, reset or a number of GPUs", Agent,
		"The GPUs that jobs may use as full GPUs, with MIG mode off.", "configure/slices.md#full-gpus"},
	{"whole_share", 0.0, "", "a number from 0 to 1", Both,
		"The largest share of the GPUs that can be full while jobs wait for slices. With 0, the GPUs that these " +
			"jobs need decide; with 1, there is no limit. Set the same value everywhere.",
		"configure/slices.md#full-gpus-or-slices-first"},
	{"policy", place.DefaultPolicy, "", "a name from `caelum simulate --help`", Both,
		"The placement policy. fragaware and grmu accept a parameter, as in `fragaware=0.4`. Set the same value " +
			"everywhere.",
		"configure/slices.md#the-placement-policy"},
	{"sizing", plan.SizingAdaptive, "", "adaptive or tightest", Both,
		"With adaptive, a job whose profile Caelum chose may get a larger slice. With tightest, each job gets the" +
			" profile that it requests. Set the same value everywhere.", "configure/slices.md#the-size-of-slices"},
	{"poll_interval", "15s", "", aTime + ", from 100ms to 1h (example: 15s)", Both,
		"The interval of reading the queue without a notification. With `planner: true`, the watcher reads it " +
			"at least every 5 s.", "configure/watcher.md#polling"},
	{"wake_port", 6873, "", "a UDP port or 0", Both,
		"The UDP port for notifications, the same on all hosts. With 0, the host opens no port.",
		"configure/watcher.md#notifications"},
	{"wake_address", "", "all addresses", "an IP address", Both,
		"The address that the host uses to send and receive notifications.", "configure/watcher.md#notifications"},
	{"wake_key", "/etc/caelum/wake.key", "", aPath, Both,
		"The key file that authenticates notifications. If the file does not exist, munge authenticates them.",
		"configure/watcher.md#a-key-file-instead-of-munge"},
	{"poke_file", "/run/caelum-watch/poke", "", aPath, Watcher,
		"The trigger file. If you change it, also set CAELUM_POKE in slurmctld's environment.",
		"configure/watcher.md#notifications"},
	{"planner", true, "", trueOrFalse, Watcher,
		"With true, the watcher makes the plan for all nodes; with false, each agent makes it.",
		"configure/watcher.md#one-plan-for-many-nodes"},
	{"preempt", true, "", trueOrFalse, Watcher,
		"With true, the watcher preempts jobs for jobs that need another profile, if Slurm's own settings allow it. " +
			"It requires `planner: true`.", "configure/watcher.md#preemption"},
	{"moves_per_day", 0, "", "a whole number from 0 to 1440", Both,
		"How many running jobs the watcher may move per day. It requires `planner: true`. Set it on the nodes, too.",
		"configure/watcher.md#moves-of-running-jobs"},
	{"move_partitions", []string{}, "none",
		"a list of partitions (example: [batch, long])", Watcher,
		"The partitions whose jobs the watcher may move without the permission of their users.",
		"configure/watcher.md#moves-of-running-jobs"},
	{"move_command", "", "none", aPathOrNone, Watcher,
		"The program that the watcher calls before and after a move.",
		"configure/watcher.md#moves-of-running-jobs"},
	{"repo", repo.DefaultPath, "", aPath, Both,
		"The repository of earlier runs: on a GPU node of this node's runs, elsewhere of all runs. The default of " +
			"a watcher that is not root is /var/lib/caelum-watch/repo.db.",
		"configure/learning.md"},
	{"accounting_field", string(slurm.AdminComment), "", "AdminComment, SystemComment or none", Both,
		"The accounting field that contains the summaries of a job's runs. Set the same value on all hosts.",
		"configure/learning.md#text-of-other-tools-in-the-accounting-field"},
	{"learn", true, "", trueOrFalse, Watcher,
		"With true, the watcher updates the repository and the decision table every minute. Without " +
			"`accounting_field`, it does not.",
		"configure/learning.md#learning-automatically"},
	{"table", "/etc/caelum/decisions", "", aPath, Watcher,
		"The decision table. If you change it, also set CAELUM_DECISIONS in slurmctld's environment.",
		"configure/decision-table.md"},
	{"margin", predict.DefaultSite.Margin, "", "a number from 0 to 10", Both,
		"The largest margin that is added to the observed peak memory, as a fraction of it. Similar peaks reduce it.",
		"configure/learning.md#memory-that-varies-from-run-to-run"},
	{"peak_quantile", predict.DefaultSite.PeakQuantile, "", "a number from 0.5 to 0.999, or 0", Both,
		"The share of a script's runs that must fit into the predicted memory if the memory use varies. With 0, " +
			"Caelum adds only the margin. Set the same value everywhere.",
		"configure/learning.md#memory-that-varies-from-run-to-run"},
	{"first_run_quantile", predict.DefaultSite.FirstRunQuantile, "", "a number from 0.5 to 0.999, or 0", Watcher,
		"The share of first runs that must fit into the memory predicted from the user's other scripts. With 0, " +
			"first runs get the default profile.", "configure/learning.md#jobs-without-earlier-runs"},
	{"max_slowdown", predict.DefaultSite.MaxSlowdown, "", "a number from 1 to 1000, or 0", Watcher,
		"The longest acceptable run time on a slice, as a multiple of the run time on a whole GPU. With 0, the " +
			"profile depends only on the memory that the job needs.", "configure/slices.md#the-size-of-slices"},
	{"share", predict.DefaultSite.Share, "", trueOrFalse, Watcher,
		"With true, users who have not yet run a script get the profile that other users need for it.",
		"configure/learning.md#which-users-runs-count"},
	{"share_users", predict.DefaultSite.Users, "", "a whole number from 1 to 1000", Watcher,
		"With `share`: the number of users who must have complete runs of a script. With 1 or 2, a single user " +
			"can determine the profile that other users get.",
		"configure/learning.md#which-users-runs-count"},
	{"grow_limit", 3, "", "a whole number from 0 to 100", Agent,
		"How often a job can grow. With 0, no job grows. Set the same value on all nodes.",
		"configure/learning.md#jobs-that-grow"},
	{"sample_interval", "1s", "", aTime + ", from 200ms to 1m, or 0 (example: 1s)", Agent,
		"The interval at which the agent samples the slices of running jobs. With 0, it neither takes samples nor" +
			" checks slices for foreign processes.", "operate.md#what-jobs-use"},
	{"foreign_processes", ForeignKillOthers, "", "report, kill-other-users or kill", Agent,
		"Which processes the agent kills if they use another job's slice or keep a released slice open.",
		"configure/isolation.md#foreign-processes"},
	{"metrics_file", "/run/caelum/caelum.prom", "", `an absolute path that ends in .prom, or ""`, Agent,
		`The file of the metrics for node_exporter. With "", or without its directory, the agent writes none.`,
		"operate.md#metrics"},
	{"metrics_listen", "", "no port",
		"an IP address with a port (example: 127.0.0.1:9488)", Agent,
		"The TCP port that serves the metrics to everyone who can connect.", "operate.md#metrics"},
	{"job_map_dir", "", "none", aPathOrNone, Agent,
		"The directory in which the agent records the job of each leased slice, for dcgm-exporter and jobstats. " +
			"No other program may write there.", "operate.md#monitoring-programs"},
	{"destroy_hook", "", "none", aPathOrNone, Agent,
		"The program that the agent calls to pause and resume monitoring programs that prevent the destruction of " +
			"an instance.", "operate.md#programs-that-hold-slices"},
	{"log_level", "info", "", "debug, info, warning or error", Both,
		"The minimum level of the logged messages.",
		"troubleshoot.md"},
	{"log_format", "text", "", "text or json", Both, "The form of the log.", "troubleshoot.md"},
}

// hostname returns the host's name up to the first dot.
func hostname() string {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	return host
}

// defaults returns all keys with their default values.
func defaults() map[string]any {
	all := map[string]any{}
	for _, k := range keys {
		all[k.Name] = k.Default
	}
	return all
}

// form describes the values of a key in an error for a value of another type.
func form(key string) string {
	for _, k := range keys {
		if _, text := k.Default.(string); k.Name == key && (!text || strings.HasPrefix(k.Values, aTime)) {
			return k.Values
		}
	}
	return "a string"
}
