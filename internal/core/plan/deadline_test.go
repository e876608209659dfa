package plan

import (
	"strings"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestExplainDeadline explains jobs with deadlines. The only GPU is either free or has a 7g.40gb slice that is busy for
// 900 s.
func TestExplainDeadline(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }
	busy := node(t, "n1", a100(t, "7g.40gb@0"))
	gpus := []place.GPU{a100(t, "7g.40gb@0")}
	busy.Extra = WithState("", Text(State{GPUs: gpus, Since: time.Unix(1e9-60, 0), Private: true}))
	free := node(t, "n1", a100(t))
	due := func(deadline int, limit time.Duration, comment string) slurm.Waiting {
		w := waits(1, "1g.5gb", 1, 1)
		w.Deadline, w.TimeLimit, w.AdminComment = at(deadline), limit, comment
		return w
	}
	long := due(100, time.Hour, tags.RunTime+"500")
	long.TimeMin = time.Minute
	for _, c := range []struct {
		what string
		node slurm.Node
		job  slurm.Waiting
		says string // a part of Misses, or empty
	}{
		{"in time", free, due(4000, time.Hour, ""), ""},
		{"the slice is busy too long", busy, due(800, time.Minute, ""), "not expected to be free before"},
		{"the slice is busy long enough", busy, due(1000, time.Minute, ""), ""},
		{"the latest start has passed", free, due(3599, time.Hour, ""), "ends it with the state DEADLINE"},
		{"the run takes too long", free, long, "expected to run for more than the 1m40s"},
		{"no deadline", busy, waits(1, "1g.5gb", 1, 1), ""},
	} {
		snapshot := snapshotOf([]slurm.Node{c.node}, c.job)
		snapshot.Queue.All = []slurm.Job{*c.job.Job, runs(9, "n1", "7g.40gb", 900)}
		e, err := Explain(snapshot, withReach, 1)
		if err != nil || (e.Misses == "") != (c.says == "") || !strings.Contains(e.Misses, c.says) {
			t.Errorf("%s: %q %v, want %q", c.what, e.Misses, err, c.says)
		}
		if c.job.Deadline.IsZero() != (e.Deadline == 0) || e.Deadline > 0 &&
			e.LatestStart != c.job.LatestStart().Unix() {
			t.Errorf("%s: deadline %d, latest start %d", c.what, e.Deadline, e.LatestStart)
		}
	}
}
