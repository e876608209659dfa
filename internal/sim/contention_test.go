package sim

import (
	"fmt"
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// ends is an Observer that records when jobs end.
type ends map[string]float64

func (e ends) Passed(from, to float64, busy, waiting int, frag float64) {}
func (e ends) Waited(job string, wait float64)                          {}
func (e ends) Ran(s Span)                                               { e[s.Job] = s.To }

// TestContention checks the ends of jobs that share a GPU equally. a runs alone until b starts at 50 s, both run at
// half speed until a ends, and b is then alone again. c needs the whole GPU, so it waits for b.
func TestContention(t *testing.T) {
	b, err := mig.ModelByName("L40S-48GB/4")
	if err != nil {
		t.Fatal(err)
	}
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 100, Profile: "1f.11gb"},
		{ID: "b", Submit: 50, Duration: 100, Profile: "1f.11gb"},
		{ID: "c", Submit: 60, Duration: 10, Profile: mig.Full},
	}
	two, err := ParsePattern(b, "2f.22gb 2f.22gb")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		c    Config
		jobs int
		want string
	}{
		{"on demand", Config{Policy: policy(t, "lifetime")}, 3, "map[a:150 b:200 c:210]"},
		{"fixed", Config{Static: two}, 2, "map[a:150 b:200]"},
		{"whole", Config{Static: []mig.Layout{b.Full()}}, 3, "map[a:100 b:200 c:210]"},
	} {
		got := ends{}
		c.c.GPUs, c.c.Discipline, c.c.Observer = []*mig.Model{b}, EASY, got
		c.c.Contention = func(on []trace.Job) float64 { return 1 / float64(len(on)) }
		r, err := Run(c.c, slices.Values(jobs[:c.jobs]))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if s := fmt.Sprint(map[string]float64(got)); s != c.want {
			t.Errorf("%s: ends %s, want %s", c.name, s, c.want)
		}
		sum := 0.0
		for _, j := range jobs[:c.jobs] {
			sum += got[j.ID] - j.Submit
		}
		if r.Started != c.jobs || r.Turnaround != sum {
			t.Errorf("%s: %d jobs with a total turnaround of %v s, want %v s", c.name, r.Started, r.Turnaround, sum)
		}
	}
}
