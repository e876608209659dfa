package agent

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/predict"
)

// wantMetrics checks that the lines are in the agent's metrics.
func (w *world) wantMetrics(lines ...string) {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "caelum.prom")
	if err := w.agent.metrics.WriteFile(path); err != nil {
		w.t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			w.t.Errorf("the metrics do not contain %s, but:", line)
			for got := range strings.Lines(string(text)) {
				if strings.HasPrefix(got, name) {
					w.t.Log(got)
				}
			}
		}
	}
}

// TestMetricsOfLeases starts one job, requeues one and refuses one.
func TestMetricsOfLeases(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.fake.SetConfig("PrivateData", "none")
	w.agent.learnPrivacy(context.Background())
	w.startNow("2g.10gb:1")
	w.submit(job(1, "")) // requeued with the default profile, for which the GPU has no room
	refused := job(1, "")
	refused.Batch = false
	w.submit(refused)
	w.fake.Tick()
	w.prologs.Wait()
	w.fake.RunEpilogs()
	w.publish()
	w.wantMetrics(
		`caelum_slices{profile="2g.10gb",state="leased"} 1`,
		`caelum_slices{profile="7g.40gb",state="leased"} 0`,
		`caelum_placement_units{gpu="0",state="busy"} 2`,
		`caelum_gpus{state="managed"} 1`,
		`caelum_lease_duration_seconds_count 1`,
		`caelum_carve_duration_seconds_count 1`,
		`caelum_failures_total{kind="requeue"} 1`,
		`caelum_failures_total{kind="refuse"} 1`,
		`caelum_failures_total{kind="prolog"} 0`,
		fmt.Sprintf("caelum_node_updates_total %d", w.agent.publisher.Changes()),
	)
}

// TestMetricsOfWaitingJobs checks that the number of waiting jobs is hidden if users may not see other users' jobs, and
// before the first pass.
func TestMetricsOfWaitingJobs(t *testing.T) {
	w := newWorld(t, 1, tightest)
	for range 3 {
		w.submit(job(1, "7g.40gb:1"))
	}
	w.submit(job(0, "")) // requests no slice
	if got := w.agent.metricsState().Waiting; got != -1 {
		t.Errorf("before the first pass, the number of waiting jobs is %d", got)
	}
	for _, c := range []struct {
		private string
		waiting int
	}{{"none", 3}, {"jobs", -1}} {
		w.fake.SetConfig("PrivateData", c.private)
		w.agent.learnPrivacy(context.Background())
		w.publish()
		if got := w.agent.metricsState().Waiting; got != c.waiting {
			t.Errorf("PrivateData=%s: the number of waiting jobs is %d, want %d", c.private, got, c.waiting)
		}
	}
}

// TestMetricsOfGrowth lets a job grow after it ran out of memory.
func TestMetricsOfGrowth(t *testing.T) {
	g := newGrowing(t, "24.11.5")
	id := g.submit(growingJob("1g.5gb", "oom"))
	g.runs(id)
	g.fails(id, 4800)
	g.agent.foresee(id, predict.Forecast{PeakMiB: 9000})
	g.wantMetrics(
		`caelum_growths_total{cause="oom"} 1`,
		`caelum_growths_total{cause="forecast"} 0`,
		`caelum_exceeding_forecasts_total 1`,
		`caelum_runs_total 1`,
	)
}

// TestMetricsFileAndPort runs the tasks that write the metrics file and serve the metrics port.
func TestMetricsFileAndPort(t *testing.T) {
	w := newWorld(t, 1)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	w.agent.cfg.MetricsFile = filepath.Join(t.TempDir(), "caelum.prom")
	w.agent.cfg.MetricsListen = free.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		w.agent.reportMetrics(ctx)
		close(ended)
	}()
	for {
		answer, err := http.Get("http://" + w.agent.cfg.MetricsListen + "/metrics")
		_, missing := os.Stat(w.agent.cfg.MetricsFile)
		if err == nil {
			answer.Body.Close()
			if missing == nil {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}

// TestMetricsPortInUse checks that an agent runs on without its metrics port.
func TestMetricsPortInUse(t *testing.T) {
	w := newWorld(t, 1)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w.agent.cfg.MetricsListen = other.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the agent tries once, and does not wait for the next attempt
	w.agent.reportMetrics(ctx)
	w.publish()
	if !strings.Contains(w.log.String(), "change metrics_listen") {
		t.Errorf("the log does not contain the error:\n%s", w.log.String())
	}
}

// TestMetricsFileErrors checks that the agent logs a series of errors only once.
func TestMetricsFileErrors(t *testing.T) {
	w := newWorld(t, 1)
	note := w.agent.noteMetricsFile()
	for _, err := range []error{fs.ErrPermission, fs.ErrPermission, nil, fs.ErrNotExist, fs.ErrNotExist} {
		note(err)
	}
	text := w.log.String()
	if got := strings.Count(text, "write the metrics file") + strings.Count(text, "writing a metrics file"); got != 2 {
		t.Errorf("the log has %d lines about the metrics file, want 2:\n%s", got, text)
	}
}
