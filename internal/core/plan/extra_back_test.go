package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestExplainBack checks that `caelum explain` makes the same plan as the agents even if they plan a job after all
// others. Because it does not observe the queue over time, it reads the list of these jobs from the nodes' Extra.
func TestExplainBack(t *testing.T) {
	shows := offering(node(t, "n1", a100(t)), "mig:7g.40gb:1")
	stuck, other := waits(1, "7g.40gb", 1, 1), waits(2, "3g.20gb", 1, 1)
	stuck.Reason = "Priority"
	var u Unstarted
	snapshot := snapshotOf([]slurm.Node{shows}, stuck, other)
	start := snapshot.At
	for _, after := range []time.Duration{0, patience + time.Second} {
		snapshot.At = start.Add(after)
		snapshot.Queue.Waiting[0].LastSchedEval = snapshot.At
		v := New(u.Reorder(snapshot), withReach, nil)
		u.Record(v, v.Plan(), snapshot.At)
	}
	until := snapshot.At.Add(backTime)
	if u.Back("n2", snapshot.At) != "" || u.Back("n1", until) != "" {
		t.Errorf("another node publishes %q, this node %q later", u.Back("n2", snapshot.At), u.Back("n1", until))
	}
	snapshot.Nodes[0].Extra = WithBack(snapshot.Nodes[0].Extra, u.Back("n1", snapshot.At))
	snapshot.Queue.All = []slurm.Job{*stuck.Job, *other.Job}
	e, err := Explain(snapshot, withReach, 1)
	says := "Until " + until.Format(time.DateTime) + ", the agents plan the job after all"
	if err != nil || e.Place != 2 || e.BackUntil != until.Unix() || !strings.Contains(e.Text, says) {
		t.Errorf("%+v %v", e, err)
	}
	if e, err := Explain(snapshot, withReach, 2); err != nil || e.Verdict != Planned || e.BackUntil != 0 {
		t.Errorf("the other job: %+v %v", e, err)
	}
	snapshot.At = until
	if e, err := Explain(snapshot, withReach, 1); err != nil || e.Verdict != OnOffer || e.Place != 1 ||
		e.BackUntil != 0 {
		t.Errorf("after that time: %+v %v", e, err)
	}
}

// TestBackEntry checks that WithBack does not change the other entries of Extra, that the length of the entry is
// limited, and that a reader skips items that cannot be parsed.
func TestBackEntry(t *testing.T) {
	extra := WithBack("rack=4 caelum=1;none caelum-back=9_@1", "7_3-5@1700000000;8_@1700000001")
	if want := "rack=4 caelum=1;none caelum-back=7_3-5@1700000000;8_@1700000001"; extra != want ||
		StateIn(extra) != "1;none" ||
		WithBack(extra, "") != "rack=4 caelum=1;none" {
		t.Errorf("%q", extra)
	}
	nodes := []slurm.Node{{Extra: extra}, {Extra: "caelum-back=8_@1700000009;;@;9_@x;10_@99999999999999999999"}}
	got := backOf(nodes)
	if len(got) != 2 || got["7_3-5"].Unix() != 1700000000 || got["8_"].Unix() != 1700000009 {
		t.Errorf("%v", got)
	}
	u := Unstarted{
		jobs: map[string]shown{strings.Repeat("9", maxItem+1): {until: time.Unix(2e9, 0), on: []string{"n1"}}},
	}
	if text := u.Back("n1", time.Unix(1e9, 0)); text != "" {
		t.Errorf("a long entry: %q", text)
	}
	for k := range 2 * maxBack {
		u.jobs[fmt.Sprint(k, "_")] = shown{until: time.Unix(2e9, 0), on: []string{"n1"}}
	}
	if n := strings.Count(u.Back("n1", time.Unix(1e9, 0)), "@"); n != maxBack {
		t.Errorf("%d entries", n)
	}
}
