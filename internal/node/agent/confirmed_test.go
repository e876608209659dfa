package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"caelum/internal/controller/watch"
	"caelum/internal/core/part"
	"caelum/internal/node/publish"
)

// polls makes each agent poll, and returns the number of requests to slurmctld.
func (f *fleet) polls() int {
	f.t.Helper()
	before := len(f.fake.Calls())
	for _, name := range f.names {
		if _, err := f.agents[name].publisher.Poll(context.Background()); err != nil {
			f.t.Fatalf("%s: %v", name, err)
		}
	}
	return len(f.fake.Calls()) - before
}

// confirmed is a fleet whose agents receive confirmations. The heartbeats' clock stands still.
type confirmed struct {
	*fleet
	planner *watch.Watcher
}

func newConfirmed(t *testing.T) confirmed {
	f, w := newPlanned(t, 2)
	f.confirms = true
	f.stopClock()
	return confirmed{f, w}
}

func (c confirmed) heartbeat() {
	c.advance(part.Every)
	c.round(c.planner)
}

// rest waits until polls make no requests.
func (c confirmed) rest() {
	c.t.Helper()
	for range 3 {
		c.heartbeat()
		c.publish()
	}
	c.heartbeat()
	if n := c.polls(); n != 0 {
		c.t.Fatalf("%d requests at rest", n)
	}
}

// startKnown starts a job whose run time is known from earlier runs.
func (c confirmed) startKnown() {
	c.t.Helper()
	known := job(1, "1g.5gb:1")
	known.AdminComment, known.TimeLimit = "caelum:runs=600-900", 10*time.Hour
	id, err := c.fake.Submit(known)
	if err != nil {
		c.t.Fatal(err)
	}
	c.round(c.planner)
	c.publish()
	if !c.runs(id) {
		c.t.Fatal("the job does not start")
	}
}

// TestConfirmedPolls checks that polls make no request while the planner confirms the nodes' records, and that they do
// in every case in which an agent may have something to do.
func TestConfirmedPolls(t *testing.T) {
	f := newConfirmed(t)
	f.startKnown()
	f.rest()
	for range 20 {
		f.heartbeat()
		if n := f.polls(); n != 0 {
			t.Fatalf("%d requests after a confirmation", n)
		}
	}
	if n := f.following(); n != 2 {
		t.Errorf("%d agents follow the planner", n)
	}
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"no confirmation for Expiry", func() { f.advance(part.Expiry) }},
		{"another program changes the GRES", func() {
			if err := f.fake.SetNodeGRES(t.Context(), "n00", gres(t, fmt.Sprintf(closedA100, 7, 28))); err != nil {
				t.Fatal(err)
			}
			f.heartbeat()
		}},
		{"the agent's state has changed", func() {
			for _, a := range f.agents {
				a.node.Lock()
				a.node.Version++
				a.node.Unlock()
			}
		}},
		{"all jobs have to be listed again", func() {
			for range int(publish.RelistConfirmed / part.Every) {
				f.heartbeat()
			}
		}},
		{"a confirmation of another record", func() {
			f.agents["n00"].publisher.Confirm(part.Confirmation("0@1", part.NoRecord), f.clock())
		}},
		{"a job has run for longer than expected", func() { f.fake.Advance(30 * time.Minute) }},
		{"users may no longer see other users' jobs", func() {
			for _, a := range f.agents {
				a.publisher.HidesJobs = func() bool { return true }
			}
		}},
		{"slurmctld starts a job whose prolog has not begun", func() {
			f.submit("1g.5gb:1")
			f.fake.Prolog(nil)
			f.fake.Tick()
			f.heartbeat()
		}},
	} {
		f.rest()
		if c.do(); f.polls() == 0 {
			t.Errorf("%s: the agents omit the poll", c.what)
		}
	}
}

// TestConfirmedClock checks that an agent whose clock was set back does not trust the last confirmation for longer.
func TestConfirmedClock(t *testing.T) {
	f := newConfirmed(t)
	f.rest()
	if f.advance(-time.Hour); f.polls() == 0 {
		t.Error("the agents omit the poll")
	}
}

// TestConfirmedConfig checks that a change in slurm.conf ends the confirmations until the agents have read it.
func TestConfirmedConfig(t *testing.T) {
	f := newConfirmed(t)
	f.rest()
	f.fake.SetConfig("SlurmUser", "slurm(64030)")
	for range time.Minute / part.Every { // the watcher reads slurm.conf every minute
		f.heartbeat()
	}
	if f.polls() == 0 {
		t.Error("the agents omit the poll")
	}
	for _, a := range f.agents {
		a.learnPrivacy(t.Context()) // as after every poll that was not omitted
	}
	f.rest()
}

// TestConfirmationsEnd checks that agents whose polls were omitted plan for themselves once the planner has ended: at
// their first poll after the heartbeat and the last confirmation have expired.
func TestConfirmationsEnd(t *testing.T) {
	f := newConfirmed(t)
	f.rest()
	f.advance(part.Expiry - 1)
	if n := f.polls(); n != 0 || f.following() != 2 {
		t.Errorf("%d requests, and %d agents follow the planner", n, f.following())
	}
	f.advance(1)
	if n := f.polls(); n == 0 || f.following() != 0 {
		t.Errorf("%d requests, and %d agents follow the planner", n, f.following())
	}
}
