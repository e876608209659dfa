package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"caelum/internal/config"
	"caelum/internal/notify"
	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/watch"
)

// commands is the number of Slurm commands that one call to the client runs. Each command sends one request for the
// data that it prints, and some commands also request the partitions.
var commands = map[string]int{"Queue": 2, "Job": 2, "Hold": 2, "Release": 2, "SetJobGRES": 2, "SetAdminComment": 2}

// watched starts a watcher and makes the agents of a fleet listen to it. It returns a function that notifies the
// watcher of a submission.
func (f *fleet) watched(b *testing.B, planner bool, port int) (submitted func()) {
	key := notify.Key(strings.Repeat("k", 32))
	trigger := filepath.Join(b.TempDir(), "trigger")
	w := watch.New(watch.Config{
		TriggerFile: trigger, WakePort: port, Address: "127.0.0.1", Name: "ctl", Key: key, Interval: time.Hour,
		Settings: plan.Settings{Policy: place.Reach, Tightest: true}, Planner: planner,
	}, f.fake, f.log.WithField("", ""))
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	for _, name := range f.names {
		a := f.agents[name]
		if err := os.WriteFile(a.cfg.WakeKey, key, 0o400); err != nil {
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
	return func() { os.WriteFile(trigger, []byte("."), 0o600) }
}

// count returns the number of Slurm commands since a call, not counting heartbeats, and how many of them return all
// nodes or all jobs.
func (f *fleet) count(since int) (all, listings int) {
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
// jobs every 20 ms.
func BenchmarkRequests(b *testing.B) {
	for _, nodes := range []int{4, 16} {
		for _, planner := range []bool{false, true} {
			b.Run(fmt.Sprintf("nodes=%d/planner=%v", nodes, planner), func(b *testing.B) {
				benchmarkRequests(b, nodes, planner)
			})
		}
	}
}

func benchmarkRequests(b *testing.B, nodes int, planner bool) {
	keys, port := b.TempDir(), freePort(b)
	f := newFleet(b, nodes, func(k int, c *config.Config) {
		c.WakeAddress, c.WakePort = fmt.Sprintf("127.0.1.%d", k+1), port
		c.WakeKey = filepath.Join(keys, fmt.Sprint(k))
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
	profiles := []string{"1g.5gb", "7g.40gb", "2g.10gb", "3g.20gb"}
	before, began := len(f.fake.Calls()), time.Now()
	beats := f.heartbeats(0)
	started, late := 0, 0
	for b.Loop() {
		id := f.submit(profiles[started%len(profiles)] + ":1")
		submitted()
		for wait := time.Now(); !f.runs(id); time.Sleep(20 * time.Millisecond) {
			if time.Since(wait) > 5*time.Second { // a datagram was lost; a real agent polls
				f.publish()
				wait, late = time.Now(), late+1
			}
		}
		f.settle()
		if err := f.fake.Finish(id); err != nil {
			b.Fatal(err)
		}
		f.settle()
		started++
	}
	all, listings := f.count(before)
	rest := 4 * (f.heartbeats(0) - beats) // the rounds of the planner's heartbeat
	b.ReportMetric(float64(all-rest)/float64(started), "requests/job")
	b.ReportMetric(float64(listings-3*(f.heartbeats(0)-beats))/float64(started), "listings/job")
	b.ReportMetric(float64(late), "polls")
	b.ReportMetric(time.Since(began).Seconds()/float64(started), "s/job")
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
