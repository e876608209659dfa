package agent

import (
	"math"
	"testing"
	"time"

	"caelum/internal/core/plan"
	"caelum/internal/node/api"
)

// TestVisibleTo checks that users see the data of other users' jobs only if slurmctld's configuration allows it.
// While the configuration is unknown, they must not see it.
func TestVisibleTo(t *testing.T) {
	w := newWorld(t, 1)
	a := w.current()
	see := func(what string, uid uint32, want api.Visibility) {
		t.Helper()
		if got := a.VisibleTo(uid); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	see("root before slurmctld answers", 0, api.SeesAll)
	see("a user before slurmctld answers", 20001, api.SeesOwn)
	see("SlurmUser before slurmctld answers", 64030, api.SeesOwn)
	w.fake.SetConfig("SlurmUser", "slurm(64030)")
	w.publish()
	see("a user", 20001, api.SeesJobs)
	see("SlurmUser", 64030, api.SeesAll)
	for _, c := range []struct {
		key, value string
		want       api.Visibility
	}{
		{"PrivateData", "accounts,jobs", api.SeesOwn},
		{"PrivateData", "accounts,usage,users", api.SeesJobs},
		{"MCSParameters", "enforced,select,privatedata", api.SeesOwn},
	} {
		w.fake.SetConfig(c.key, c.value)
		a.learnPrivacy(t.Context())
		see(c.key+"="+c.value, 20001, c.want)
		see("root with "+c.key+"="+c.value, 0, api.SeesAll)
		w.fake.SetConfig(c.key, "")
	}
}

// TestPublishesJobs checks that the agent publishes the jobs that hold its slices only if Slurm preempts jobs or
// moves_per_day is set, and never if users may not see other users' jobs.
func TestPublishesJobs(t *testing.T) {
	for _, c := range []struct {
		moves         int
		kind, private string
		want          bool
	}{
		{0, "preempt/none", "", false},
		{0, "preempt/qos", "", true},
		{4, "preempt/none", "", true},
		{4, "preempt/none", "jobs", false},
		{4, "preempt/qos", "jobs", false},
	} {
		w := newWorld(t, 1)
		a := w.current()
		a.cfg.MovesPerDay = c.moves
		if a.publishesJobs() {
			t.Errorf("%+v: the agent publishes jobs before slurmctld has answered", c)
		}
		for key, value := range map[string]string{
			"PreemptType": c.kind, "PreemptMode": "REQUEUE", "PrivateData": c.private,
		} {
			w.fake.SetConfig(key, value)
		}
		a.learnPrivacy(t.Context())
		if got := a.publishesJobs(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestEndsPrivate checks that the node's Extra does not show the expected ends of jobs if users may not see other
// users' jobs. PrivateData may change while jobs are running.
func TestEndsPrivate(t *testing.T) {
	w := newWorld(t, 1)
	shown := func() (ends int) {
		t.Helper()
		w.publish()
		n, err := w.fake.Node(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		s, err := plan.Parse(plan.StateIn(n.Extra))
		if err != nil || s.GPUs[0].Busy.Count() != 1 {
			t.Fatalf("%v: %+v", err, s)
		}
		for _, end := range s.GPUs[0].Ends {
			if !math.IsInf(end, 1) {
				ends++
			}
		}
		return ends
	}
	j := job(1, "2g.10gb:1")
	j.TimeLimit = time.Hour
	w.submit(j)
	w.publish()
	w.fake.Tick()
	w.prologs.Wait()
	for _, c := range []struct {
		private string
		ends    int
	}{{"", 1}, {"jobs", 0}, {"nodes", 1}} {
		w.fake.SetConfig("PrivateData", c.private)
		w.current().learnPrivacy(t.Context())
		if got := shown(); got != c.ends {
			t.Errorf("PrivateData=%s: the node shows %d ends, want %d", c.private, got, c.ends)
		}
	}
}
