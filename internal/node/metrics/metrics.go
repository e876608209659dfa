package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"caelum/internal/core/predict"
	"caelum/internal/version"
)

// Failure is a value of the kind label of caelum_failures_total.
type Failure string

// These constants are the kinds of failures.
const (
	Carve   Failure = "carve"   // a slice could not be carved
	Destroy Failure = "destroy" // the driver did not destroy an instance, which is now stuck
	Prolog  Failure = "prolog"  // a prolog failed because of a fault on the node; Slurm drains the node
	Publish Failure = "publish" // a pass failed, so the published offers may be out of date
	Refuse  Failure = "refuse"  // a job was not given a slice, so its tasks fail
	Requeue Failure = "requeue" // a job was requeued because its slices were not available
)

// leaseBuckets and carveBuckets are the upper bounds of the histograms' buckets in seconds. Without delays, a prolog
// takes a fraction of a second; by default, it waits for at most a minute. Carving a slice takes less than a second,
// whereas switching the MIG mode takes several seconds.
var (
	leaseBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	carveBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
)

// Metrics holds an agent's metrics. Its methods are safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	lease     prometheus.Histogram
	carve     prometheus.Histogram
	failures  *prometheus.CounterVec
	growths   *prometheus.CounterVec
	forecasts prometheus.Counter
	runs      prometheus.Counter
	xids      *prometheus.CounterVec

	mu     sync.Mutex // protects page and pageAt
	page   []byte     // the text of all metrics
	pageAt time.Time  // the time at which page was made
}

// New returns an agent's metrics. The function state returns the agent's current state and must not block on the driver
// or slurmctld.
func New(state func() State) *Metrics {
	m := &Metrics{
		registry: prometheus.NewPedanticRegistry(),
		lease: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "caelum_lease_duration_seconds", Buckets: leaseBuckets,
			Help: "Duration of the prolog calls for which slices were leased, from the call to the reply.",
		}),
		carve: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "caelum_carve_duration_seconds", Buckets: carveBuckets,
			Help: "Time taken by the driver to create a slice.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "caelum_failures_total",
			Help: "Failures since the agent started, by kind.",
		}, []string{"kind"}),
		growths: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "caelum_growths_total",
			Help: "Jobs that the agent requeued with a larger slice, by cause: after they ran out of memory (oom), " +
				"or before (forecast).",
		}, []string{"cause"}),
		forecasts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "caelum_exceeding_forecasts_total",
			Help: "Forecasts that exceeded the slice of a running job that may grow before it runs out of memory. " +
				"A job can have several.",
		}),
		xids: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "caelum_xid_errors_total",
			Help: "Xid errors that the driver has reported since the agent started, by GPU and code.",
		}, []string{"gpu", "xid"}),
		runs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "caelum_runs_total",
			Help: "Finished runs with slices on this node since the agent started.",
		}),
	}
	build := version.Current()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "caelum_build_info", Help: "Release, commit and Go version of the agent. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "goversion": build.Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.lease, m.carve, m.growths, m.failures, m.forecasts, m.runs, m.xids, info,
		collector{state})
	for _, kind := range []Failure{Carve, Destroy, Prolog, Publish, Refuse, Requeue} {
		m.failures.WithLabelValues(string(kind)) // exports 0 before the first failure
	}
	for _, cause := range []predict.Cause{predict.RanOutOfMemory, predict.Foreseen} {
		m.growths.WithLabelValues(string(cause))
	}
	return m
}

// Leased records the duration of a prolog call that returned slices.
func (m *Metrics) Leased(d time.Duration) { m.lease.Observe(d.Seconds()) }

// Carved records the time that the driver took to create a slice.
func (m *Metrics) Carved(d time.Duration) { m.carve.Observe(d.Seconds()) }

// Failed counts a failure.
func (m *Metrics) Failed(kind Failure) { m.failures.WithLabelValues(string(kind)).Inc() }

// Grew counts a job that was requeued with a larger slice, or whose fraction grew while it was running.
func (m *Metrics) Grew(cause predict.Cause) { m.growths.WithLabelValues(string(cause)).Inc() }

// Foresaw counts a forecast of memory use that exceeds the memory of a running job's slice.
func (m *Metrics) Foresaw() { m.forecasts.Inc() }

// Xid counts an Xid error of a GPU.
func (m *Metrics) Xid(gpu, code int) {
	m.xids.WithLabelValues(strconv.Itoa(gpu), strconv.Itoa(code)).Inc()
}

// Ended counts a finished run that used slices.
func (m *Metrics) Ended() { m.runs.Inc() }
