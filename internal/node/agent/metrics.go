package agent

import (
	"context"
	"errors"
	"io/fs"
	stdlog "log"
	"sync"
	"time"

	"caelum/internal/node/metrics"
)

// metricsState returns the node's state for the metrics.
func (a *Agent) metricsState() metrics.State {
	status, _ := a.Status(context.Background()) // Status always succeeds
	s := metrics.State{
		Status:           *status,
		Now:              a.node.Now(),
		Waiting:          -1,
		Updates:          int(a.publisher.Changes()),
		RepositoryFailed: a.usage.RepositoryFailed(),
	}
	if pass := a.publisher.Last(); pass.Read && !a.hidesJobs() {
		s.Waiting = pass.Waiting
	}
	return s
}

// reportMetrics writes the metrics file and serves the metrics port, if they are configured, until ctx is done. A
// failure never stops the agent.
func (a *Agent) reportMetrics(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	if a.cfg.MetricsFile != "" {
		tasks.Go(func() { a.metrics.WriteFiles(ctx, a.cfg.MetricsFile, a.noteMetricsFile()) })
	}
	if a.cfg.MetricsListen == "" {
		return
	}
	for {
		l, err := metrics.Listen(a.cfg.MetricsListen)
		if err == nil {
			a.log.WithField("address", l.Addr()).Info("serving metrics")
			err = a.metrics.Serve(ctx, l, stdlog.New(debugLines{a.log}, "", 0))
		}
		if err != nil {
			a.log.WithError(err).Error("couldn't open the metrics port; trying again in a minute")
		}
		select { // another program may have taken the port while the agent was not running
		case <-ctx.Done():
			return
		case <-time.After(portInterval):
		}
	}
}

// portInterval is the time between two attempts to open the metrics port.
const portInterval = time.Minute

// debugLines logs the errors of net/http at debug level, because any client on the network can cause them.
type debugLines warnings

func (d debugLines) Write(p []byte) (int, error) {
	d.Debug(string(p))
	return len(p), nil
}

// noteMetricsFile returns a function that logs the first error from writing the metrics file, and no further errors
// until a write succeeds. A missing directory is not an error, because node_exporter may not be installed.
func (a *Agent) noteMetricsFile() func(error) {
	failed := false
	return func(err error) {
		if err != nil && !failed {
			log := a.log.WithError(err).WithField("metrics_file", a.cfg.MetricsFile)
			if errors.Is(err, fs.ErrNotExist) {
				log.Info("not writing a metrics file, because its directory does not exist")
			} else {
				log.Warn("couldn't write the metrics file")
			}
		}
		failed = err != nil
	}
}

// leased records the result of a prolog's call that began at the given time. If ctx is done, the plugin is no longer
// waiting for the answer, and an error does not mean that the node has a defect.
func (a *Agent) leased(ctx context.Context, slices int, began time.Time, err error) {
	switch {
	case err == nil && slices > 0:
		a.metrics.Leased(time.Since(began))
	case err != nil && !isNotNow(err) && ctx.Err() == nil:
		a.metrics.Failed(metrics.Prolog)
	}
}
