package growtrace

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCurve checks the methods of random curves against each other.
func TestCurve(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		c, level := Draw(rng), 1.1*rng.Float64()
		from, highest := c.Exceeds(level), 0.0
		for k := range 2000 {
			share := (float64(k) + rng.Float64()) / 2000
			highest = max(highest, c.At(share))
			if share < from && c.At(share) > level {
				t.Fatalf("%+v exceeds %v at %v, not only at %v", c, level, share, from)
			}
			now, before := c.At(share), c.Before(share)
			if now > before+1e-9 && !c.Epochs && c.Before(share+1e-6) < now-1e-9 {
				t.Fatalf("%+v uses %v at %v, but at most %v before", c, c.At(share), share, before)
			}
		}
		if from > 0 && from < 1 && (c.Before(from) > level || c.At(from) <= level) {
			t.Fatalf("%+v exceeds %v at %v, from %v to %v", c, level, from, c.Before(from), c.At(from))
		}
		if highest > 1 || c.Rise < 1 && c.Before(1) != 1 {
			t.Fatalf("the peak of %+v is %v", c, highest)
		}
	}
}

// TestTrace checks that a trace does not depend on the number of jobs that follow, and that cuda-process can read each
// job's memory and uses as much as its curve.
func TestTrace(t *testing.T) {
	all := Trace(7, 200)
	if some := Trace(7, 50); some[49] != all[49] {
		t.Errorf("job 49 is %+v, and %+v in the longer trace", some[49], all[49])
	}
	failing := 0
	for k, j := range all {
		if k > 0 && j.Submit < all[k-1].Submit || j.Limit < j.Seconds || j.PeakMiB > most {
			t.Fatalf("%+v", j)
		}
		if j.Until < 1 {
			failing++
		}
		j.checkPoints(t)
	}
	if failing < 10 || failing > 40 {
		t.Errorf("%d of 200 jobs fail for other reasons than memory", failing)
	}
}

// checkPoints compares a job's memory according to Points with its curve, except near the jumps.
func (j Job) checkPoints(t *testing.T) {
	t.Helper()
	var at, mib []float64
	for word := range strings.SplitSeq(j.Points(), ",") {
		s, m, _ := strings.Cut(word, ":")
		second, err1 := strconv.ParseFloat(s, 64)
		memory, err2 := strconv.ParseUint(m, 10, 32)
		if err1 != nil || err2 != nil || len(at) > 0 && second <= at[len(at)-1] {
			t.Fatalf("%+v: %s", j, j.Points())
		}
		at, mib = append(at, second), append(mib, float64(memory))
	}
	if highest, want := slices.Max(mib), j.Before(j.Until)*j.PeakMiB; math.Abs(highest-want) > 1 && j.Until == 1 {
		t.Fatalf("%+v uses at most %v MiB, want %v: %s", j, highest, want, j.Points())
	}
	if len(at) > 64 || math.Abs(at[len(at)-1]-j.Until*j.Seconds) > 0.02 {
		t.Fatalf("%+v: %s", j, j.Points())
	}
	for k := 1; k < len(at); k++ {
		if at[k]-at[k-1] < 0.2 || at[k] <= Loading {
			continue // a jump, or the program loads its data
		}
		middle := (at[k] + at[k-1]) / 2
		want := j.At(middle/j.Seconds) * j.PeakMiB
		if math.Abs(mib[k]-want) > 1 || mib[k-1] != mib[k] {
			t.Fatalf("%+v: %v and %v MiB at %v s, want %v: %s", j, mib[k-1], mib[k], middle, want, j.Points())
		}
	}
}
