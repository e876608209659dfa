package place

import (
	"testing"

	"caelum/internal/core/mig"
)

// TestNodeSlots checks that the policies that use expected ends place an instance on the node where other instances
// become free at about the same time, if the GPUs of the nodes may be full.
func TestNodeSlots(t *testing.T) {
	cut, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	cut = cut.Select(mig.Plain)
	const profile = "7g.80gb"
	whole, _ := cut.Placement(profile, 0)
	for _, c := range []struct {
		model     *mig.Model
		duration  float64
		gpu, both int // the expected GPU with one and with two busy nodes
	}{
		{cut, 900, 1, 1},
		{cut.WithFull(80 << 10), 50, 1, 1},
		{cut.WithFull(80 << 10), 900, 1, 3}, // instances are on node 1 until 1000 s
	} {
		for _, name := range []string{"lifetime"} {
			p, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			gpus := make([]GPU, 6) // three nodes with two GPUs each
			for k := range gpus {
				gpus[k] = GPU{Model: c.model, Node: k / 2}
			}
			gpus[0].Hold(whole, 100)
			got := p.Choose(&Situation{Pool: NewPool(gpus)}, Request{profile, c.duration})
			if got.Verdict != Here || got.GPU != c.gpu {
				t.Errorf("%s, %v s: %+v with one busy node, want GPU %d", name, c.duration, got, c.gpu)
			}
			gpus[2].Hold(whole, 1000)
			got = p.Choose(&Situation{Pool: NewPool(gpus)}, Request{profile, c.duration})
			if got.Verdict != Here || got.GPU != c.both {
				t.Errorf("%s, %v s: %+v with two busy nodes, want GPU %d", name, c.duration, got, c.both)
			}
		}
	}
}
