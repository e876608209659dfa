package watch

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/part"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// TestPartOfAnUnresponsiveNode checks that a node that the plan leaves out keeps no part. With an old part, which its
// agent has published, the node's record would not change, and the node would be left out forever. The part can be old
// because another planner wrote it, or because the planner was stopped before it wrote a deferred part.
func TestPartOfAnUnresponsiveNode(t *testing.T) {
	q := &queue{node: node(t, "n1", "", "mig:closed:28", ""), waiting: []slurm.Waiting{job(t, 1, "mig:7g.40gb:1")}}
	at := time.Unix(1e9, 0)
	log := logrus.New()
	log.SetOutput(io.Discard)
	w := New(Config{Settings: tightestFirst, Interval: part.Every, Planner: true, Name: "ctl",
		Now: func() time.Time { return at }}, q, log.WithField("", ""))
	round := func(after time.Duration) (own string) {
		at = at.Add(after)
		snapshot := plan.Snapshot{Nodes: []slurm.Node{q.node}, Queue: slurm.Queue{Waiting: q.waiting}, At: at}
		v, made := w.notifications.plan(snapshot)
		if err := w.planner.write(context.Background(), snapshot, v, made, &w.notifications); err != nil {
			t.Fatal(err)
		}
		return part.In(q.node.Comment)
	}
	if own := round(0); !strings.Contains(own, "7g.40gb@0") {
		t.Fatalf("the part is %q", own)
	}
	q.node.Comment = part.With(q.node.Comment, "1;beat/n1")
	if own := round(time.Minute); own != "" || part.BeatIn(q.node.Comment) == "" {
		t.Errorf("the Comment of an unresponsive node is %q", q.node.Comment)
	}
	q.node.Gres = gres(t, "gpu:a100:7,mig:7g.40gb:1,mig:closed:27")
	if own := round(time.Minute); !strings.Contains(own, "7g.40gb@0") {
		t.Errorf("once the agent has published offers, the part is %q", own)
	}
}
