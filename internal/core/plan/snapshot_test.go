package plan

import (
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

const closed = "gpu:a100:7,mig:closed:28"

// node returns a node that can start jobs, has the given GPUs and offers no slices.
func node(t testing.TB, name string, gpus ...place.GPU) slurm.Node {
	t.Helper()
	list, err := slurm.ParseGRES(closed)
	if err != nil {
		t.Fatal(err)
	}
	return slurm.Node{
		Name:       name,
		States:     []string{"IDLE"},
		Partitions: []string{"gpu"},
		Gres:       list,
		Extra:      WithState("", Text(State{GPUs: gpus, Since: time.Unix(1e9-60, 0)})),
	}
}

func a100(t testing.TB, busy ...string) place.GPU {
	t.Helper()
	b := model(t, "A100-40GB")
	g := place.GPU{Model: b, Offerable: plain(b)}
	for _, label := range busy {
		profile, start, _ := strings.Cut(label, "@")
		i, ok := b.Placement(profile, int(start[0]-'0'))
		if !ok {
			t.Fatal(label)
		}
		g.Hold(i, 1e9+100)
	}
	return g
}

func waits(id uint32, profile string, count, nodes int) slurm.Waiting {
	return slurm.Waiting{
		Elements: 1,
		Job: &slurm.Job{ID: id, State: "PENDING", Reason: "Resources", Priority: 1, Partition: "gpu", NumNodes: nodes,
			TimeLimit: time.Hour, PerNode: []slurm.GRES{{Name: "mig", Type: profile, Count: count}}},
	}
}

func snapshotOf(nodes []slurm.Node, waiting ...slurm.Waiting) Snapshot {
	return Snapshot{Nodes: nodes, Queue: slurm.Queue{Waiting: waiting}, At: time.Unix(1e9, 0)}
}

func model(t testing.TB, name string) *mig.Model {
	t.Helper()
	b, err := mig.ModelByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func plain(b *mig.Model) (l mig.Layout) {
	for i, p := range b.Profiles {
		if mig.Plain(p) {
			l |= b.OfProfile(i)
		}
	}
	return l
}
