package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"caelum/internal/config"
	"caelum/internal/controller/notify"
	"caelum/internal/controller/watch"
	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm/slurmtest"
)

// commands is the number of Slurm commands that one call to the client runs. Each command sends one request for the
// data that it prints, and some commands also request the partitions. While jobs wait, Queue runs a second command,
// which count adds.
var commands = map[string]int{"Job": 2, "Hold": 2, "Release": 2, "SetJobGRES": 2, "SetAdminComment": 2}

// watched starts a watcher and makes the agents of a fleet listen to it. It returns a function that notifies the
// watcher of a submission.
func (f *fleet) watched(b *testing.B, planner bool, port int) (submitted func()) {
	key := notify.Key(strings.Repeat("k", 32))
	trigger, path := filepath.Join(b.TempDir(), "trigger"), filepath.Join(b.TempDir(), "wake.key")
	if err := os.WriteFile(path, key, 0o400); err != nil {
		b.Fatal(err)
	}
	w := watch.New(watch.Config{
		TriggerFile: trigger, NotifyPort: port, NotifyAddress: "127.0.0.1", Name: "ctl", NotifyKey: path,
		Interval: time.Hour,
		Settings: plan.Settings{Policy: place.Reach, Tightest: true}, Planner: planner, Now: f.clock,
	}, f.fake, f.log.WithField("", ""))
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	for _, name := range f.names {
		a := f.agents[name]
		if err := os.WriteFile(a.cfg.NotifyKey, key, 0o400); err != nil {
			b.Fatal(err)
		}
		if _, err := a.slurmConfig(ctx); err != nil {
			b.Fatal(err)
		}
		done.Go(func() { a.listen(ctx) })
		for a.sender.Load() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	b.Cleanup(func() { stop(); done.Wait() })
	return func() { // like job_submit.lua, which does not truncate the file
		file, err := os.OpenFile(trigger, os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString("."); err != nil {
			b.Fatal(err)
		}
	}
}

// count returns the number of Slurm commands since a call, and how many of them return all
// nodes or all jobs. twice is the number of calls to Queue that ran a second command.
func (f *fleet) count(since, twice int) (all, listings int) {
	all, listings = twice, twice
	for _, c := range f.fake.Calls()[since:] {
		n := max(commands[c.Op], 1)
		if all += n; c.Op == "Nodes" || c.Op == "Queue" || c.Op == "Jobs" {
			listings += n
		}
	}
	return all, listings
}

// BenchmarkRequests submits jobs one after the other, lets each of them start and end, and reports the number of Slurm
// commands per job. The agents, the watcher and their datagrams are real. slurmctld is slurmtest.Fake, which starts
// jobs every 20 ms. CAELUM_NODES sets the number of nodes; more than 16 nodes need an emulator that has been compiled
// with a larger EMU_MAX_GPUS.
func BenchmarkRequests(b *testing.B) {
	sizes := []int{4, 16}
	if n := envInt(b, "CAELUM_NODES", 0); n > 0 {
		sizes = []int{n}
	}
	for _, nodes := range sizes {
		if nodes <= 16 {
			b.Run(fmt.Sprintf("nodes=%d/planner=false", nodes), func(b *testing.B) { benchmarkRequests(b, nodes, 0) })
		}
		for _, jobs := range []int{1, 5} {
			b.Run(fmt.Sprintf("nodes=%d/planner=true/jobs=%d", nodes, jobs), func(b *testing.B) {
				benchmarkRequests(b, nodes, jobs)
			})
		}
	}
}

// benchmarkRequests uses no planner if jobs is 0. If it is 1, each job runs for longer than the time between
// heartbeats, and so does the time between jobs. Otherwise, this number of jobs run between two heartbeats.
func benchmarkRequests(b *testing.B, nodes, jobs int) {
	planner := jobs > 0
	keys, port := b.TempDir(), freePort(b)
	f := newFleet(b, nodes, func(k int, c *config.Config) {
		c.NotifyAddress, c.NotifyPort = fmt.Sprintf("127.0.1.%d", k+1), port
		c.NotifyKey = filepath.Join(keys, fmt.Sprint(k))
	})
	submitted := f.watched(b, planner, port)
	for range 2 {
		submitted()
		f.publish()
		f.settle()
	}
	if planner && f.following() != nodes {
		b.Fatalf("%d of %d agents follow the planner", f.following(), nodes)
	}
	var waits atomic.Bool  // whether the job waits
	var twice atomic.Int64 // the number of calls to Queue while the job waited
	f.fake.After(func(c slurmtest.Call) {
		if c.Op == "Queue" && waits.Load() {
			twice.Add(1)
		}
	})
	beat := func() {
		f.advance(part.Every)
		submitted()
		f.settle()
	}
	before, beats := len(f.fake.Calls()), f.heartbeats(0)
	started, late := 0, 0
	for b.Loop() {
		waits.Store(true)
		id := f.submit([]string{"1g.5gb:1", "7g.40gb:1", "2g.10gb:1", "3g.20gb:1"}[started%4])
		submitted()
		for wait := time.Now(); !f.runs(id); time.Sleep(20 * time.Millisecond) {
			if time.Since(wait) > 5*time.Second { // a datagram was lost; a real agent polls
				f.publish()
				wait, late = time.Now(), late+1
			}
		}
		waits.Store(false)
		f.settle()
		if jobs == 1 {
			beat()
		}
		if err := f.fake.Finish(id); err != nil {
			b.Fatal(err)
		}
		f.settle()
		if started++; planner && started%jobs == 0 {
			beat()
		}
	}
	all, listings := f.count(before, int(twice.Load()))
	beats = f.heartbeats(0) - beats // a round with a heartbeat lists the nodes and jobs and writes a Comment
	b.ReportMetric(float64(all-3*beats)/float64(started), "requests/job")
	b.ReportMetric(float64(listings-2*beats)/float64(started), "listings/job")
	b.ReportMetric(float64(late), "polls")
}

// heartbeats returns the number of heartbeats since a call.
func (f *fleet) heartbeats(since int) (n int) {
	last := ""
	for _, c := range f.fake.Calls()[since:] {
		if _, beat, ok := strings.Cut(c.Text, "caelum-beat="); c.Op == "SetNodeComment" && ok && beat != last {
			last = beat
			n++
		}
	}
	return n
}

// settle waits until no call except heartbeats has reached slurmctld for 0.7 s.
func (f *fleet) settle() {
	quiet, last := time.Now(), len(f.fake.Calls())
	for time.Since(quiet) < 700*time.Millisecond {
		time.Sleep(20 * time.Millisecond)
		if n := len(f.fake.Calls()); n != last {
			quiet, last = time.Now(), n
		}
	}
}
