package place

import (
	"maps"
	"math"
	"testing"
)

func TestRecent(t *testing.T) {
	var r Recent
	if len(r.Weights().asked) != 0 || r.MeanDuration() != 0 {
		t.Errorf("without requests: %v, %v", r.Weights(), r.MeanDuration())
	}
	for range 3 {
		r.Add(Request{"1g.5gb", 100})
	}
	r.Add(Request{"7g.40gb", 500})
	if w := r.Weights().asked; !maps.Equal(w, map[string]float64{"1g.5gb": 3, "7g.40gb": 1}) ||
		r.MeanDuration() != 200 {
		t.Errorf("%v, %v", w, r.MeanDuration())
	}
	r.Add(Request{"7g.40gb", math.Inf(1)})
	if r.MeanDuration() != 200 {
		t.Errorf("with a job of unknown duration: %v", r.MeanDuration())
	}
	for range RecentKept {
		r.Add(Request{"2g.10gb", 7})
	}
	if w := r.Weights().asked; len(w) != 1 || r.MeanDuration() != 7 {
		t.Errorf("old requests still count: %v, %v", w, r.MeanDuration())
	}
}
