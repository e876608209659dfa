package offer

import (
	"testing"

	"caelum/internal/core/place"
)

// TestPoweredDown checks that a plan uses a node that is powered down only for a job that does not fit on another node,
// and makes no speculative offers there.
func TestPoweredDown(t *testing.T) {
	b := plain(t, "A100-40GB")
	half, _ := b.Placement("4g.20gb", 0)
	for _, policy := range place.Names() {
		by, err := place.ByName(policy)
		if err != nil {
			t.Fatal(err)
		}
		full := place.GPU{Model: b, Offerable: everything(b)}
		full.Hold(half, 1000)
		c := NewCluster(by, []place.GPU{full}, []place.GPU{{Model: b, Offerable: everything(b)}})
		c.PoweredDown = 1
		jobs := demands("1 7g.40gb 1\n2 3g.20gb 1")
		p := Make(c, jobs, false)
		if p.Spots[0] == nil || p.Spots[0][0].GPU != 1 || p.Spots[1] == nil || p.Spots[1][0].GPU != 0 {
			t.Errorf("%s: planned at %v", policy, p.Spots)
		}
		if p := Make(c, nil, false); p.Offers[0] == 0 || p.Offers[1] != 0 {
			t.Errorf("%s: speculative offers %v", policy, p.Offers)
		}
		c.PoweredDown = 2
		if p := Make(c, jobs, false); p.Spots[0] == nil || p.Spots[1] == nil {
			t.Errorf("%s: all nodes are powered down: planned at %v", policy, p.Spots)
		}
	}
}
