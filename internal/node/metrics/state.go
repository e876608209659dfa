package metrics

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"caelum/internal/node/api"
)

// State is an agent's state at one point in time.
type State struct {
	api.Status
	Now time.Time
	// Waiting is the number of waiting jobs in the cluster that request slices, as of the last query to slurmctld. It
	// is negative if slurmctld has not been queried or if users are not allowed to see other users' jobs.
	Waiting int
	// Updates is the number of changes made to the node's record in slurmctld since the agent started.
	Updates int
	// RepositoryFailed is true if the last access to the repository failed.
	RepositoryFailed bool
}

// states lists the states of slices in the order used in the documentation.
var states = []string{api.StateLeased, starting, api.StateIdle, api.StateStuck, api.StateForeign}

// starting is the state, also shown by `caelum status`, of a slice that is reserved for a job whose prolog has not
// received the lease yet.
const starting = "starting"

// collector computes the metrics of an agent's state each time they are collected.
type collector struct{ state func() State }

// desc returns the description of one of the state's metrics.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("caelum_"+name, help, labels, nil)
}

var (
	descGPUs   = desc("gpus", "GPUs on the node, by whether the agent manages them (managed, unmanaged).", "state")
	descSlices = desc("slices",
		"Slices on the node, by profile and state (leased, starting, idle, stuck, foreign).", "profile", "state")
	descShort = desc("short_slices", "Slices on the node whose compute instance has fewer SMs than the slice.")
	descUnits = desc("placement_units",
		"Placement units of a managed GPU, by state (busy, idle, stuck, free). A unit of an idle slice is idle.",
		"gpu", "state")
	descOffers  = desc("offers", "Slices on offer on the node, by profile.", "profile")
	descWaiting = desc("waiting_jobs",
		"Waiting jobs in the cluster that requested slices. Absent if users may not see other users' jobs.")
	descPublished = desc("publish_timestamp_seconds",
		"Unix time of the last successful publication of the offers; 0 before the first.")
	descUpdates = desc("node_updates_total",
		"Changes made to the node's record in slurmctld since the agent started.")
	descSummaries = desc("summaries_waiting",
		"Finished runs whose summaries have not reached slurmdbd yet.")
	descRepository = desc("repository_working",
		"Whether the last access to the repository of runs succeeded (1) or not (0).")
	descNotifications = desc("notifications_working",
		"Whether the agent can receive notifications from the watcher (1), or could not open wake_port (0).")
	descRead = desc("read_timestamp_seconds", "Unix time at which the agent computed these metrics.")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descGPUs, descSlices, descShort, descUnits, descOffers, descWaiting, descPublished, descUpdates, descSummaries,
		descRepository, descNotifications, descRead,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.state()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	managed := 0
	for _, g := range s.GPUs {
		if g.Problem == "" {
			managed++
		}
		for state, units := range unitsOf(g) {
			gauge(descUnits, float64(units), strconv.Itoa(g.Index), state)
		}
	}
	gauge(descGPUs, float64(managed), "managed")
	gauge(descGPUs, float64(len(s.GPUs)-managed), "unmanaged")
	for profile, count := range slicesOf(s.Status) {
		for _, state := range states {
			gauge(descSlices, float64(count[state]), profile, state)
		}
	}
	gauge(descShort, float64(shortSlices(s.Status)))
	for profile, count := range offersOf(s.Status) {
		gauge(descOffers, float64(count), profile)
	}
	if s.Waiting >= 0 {
		gauge(descWaiting, float64(s.Waiting))
	}
	gauge(descPublished, float64(s.PublishedAt))
	out <- prometheus.MustNewConstMetric(descUpdates, prometheus.CounterValue, float64(s.Updates))
	gauge(descSummaries, float64(s.SummariesWaiting))
	working := 1.0
	if s.RepositoryFailed {
		working = 0
	}
	gauge(descRepository, working)
	hears := 1.0
	if s.Deaf != "" {
		hears = 0
	}
	gauge(descNotifications, hears)
	gauge(descRead, float64(s.Now.Unix()))
}

// stateOf returns the name of an instance's state.
func stateOf(in api.Instance) string {
	if in.State == api.StatePromised {
		return starting
	}
	return in.State
}

// slicesOf returns the number of slices by profile and state, for all profiles that the node offers.
func slicesOf(s api.Status) map[string]map[string]int {
	count := map[string]map[string]int{}
	for _, p := range s.Profiles {
		count[p] = map[string]int{}
	}
	for _, g := range s.GPUs {
		for _, in := range g.Instances {
			if count[in.Profile] == nil {
				count[in.Profile] = map[string]int{}
			}
			count[in.Profile][stateOf(in)]++
		}
	}
	return count
}

// shortSlices returns the number of slices whose compute instance has fewer SMs than the slice.
func shortSlices(s api.Status) (n int) {
	for _, g := range s.GPUs {
		for _, in := range g.Instances {
			if in.Short() {
				n++
			}
		}
	}
	return n
}

// offersOf returns the number of offered slices by profile, for all profiles that the node offers.
func offersOf(s api.Status) map[string]int {
	count := map[string]int{}
	for _, p := range s.Profiles {
		count[p] = 0
	}
	for _, g := range s.GPUs {
		for _, o := range g.Offers {
			count[o.Profile]++
		}
	}
	return count
}

// unitsOf returns the number of a GPU's placement units by state, or nil if the agent does not manage the GPU. If two
// instances share a unit because a job that is starting replaces an idle slice, the unit counts as busy.
func unitsOf(g api.GPU) map[string]int {
	if g.Grid == 0 || g.Problem != "" {
		return nil
	}
	units := slices.Repeat([]string{"free"}, g.Grid)
	rank := map[string]int{"free": 0, "idle": 1, "busy": 2, "stuck": 3}
	for _, in := range g.Instances {
		state := "busy"
		if in.State == api.StateIdle || in.State == api.StateStuck {
			state = in.State
		}
		for u := max(in.Start, 0); u < min(in.Start+in.Size, g.Grid); u++ {
			if rank[state] > rank[units[u]] {
				units[u] = state
			}
		}
	}
	count := map[string]int{}
	for state := range maps.Keys(rank) {
		count[state] = 0
	}
	for _, state := range units {
		count[state]++
	}
	return count
}
