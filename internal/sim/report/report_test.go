package report

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"caelum/internal/sim"
)

func recorded() *Recorder {
	r := &Recorder{}
	r.Passed(0, 100, 8, 3, 0.25)
	r.Passed(100, 400, 4, 0, 0)
	r.Ran(sim.Span{Job: "1", Profile: "3g.20gb", GPU: 0, Start: 4, Size: 4, From: 0, To: 400})
	r.Ran(sim.Span{Job: "<script>alert(1)</script>", Profile: "1g.5gb", GPU: 1, Start: 6, Size: 1, From: 10, To: 60})
	return r
}

func write(t *testing.T, p Page) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPage(t *testing.T) {
	page := write(
		t,
		Page{
			Title:   `jobs of <us> & "them"`,
			Command: "caelum simulate '<script>'",
			Date:    "2026-11-24 14:00 UTC",
			Facts:   []string{"2 jobs on 2 GPUs", "omitted 1 job: no GPU"},
			Grids:   []int{8, 8},
			Policies: []Policy{
				{Reference: true, Name: "(as it was)", MeanWait: 12345.6, LongestWait: 2e4},
				{
					Name:        "reach",
					MeanWait:    10,
					MedianWait:  5,
					P95Wait:     80,
					P99Wait:     90,
					LongestWait: 100,
					Utilisation: 0.625,
					Created:     2,
					Recorded:    recorded(),
				},
			},
		},
	)
	for _, want := range []string{
		"<h1>jobs of &lt;us&gt; &amp; &#34;them&#34;</h1>",
		"omitted 1 job: no GPU",
		`<td data-head="mean wait, s">12,346<td data-head="median">`,
		`<td data-head="in use">62.5%<td data-head="fragmentation">0.00<td data-head="created">2`,
		`<p class="verdict">With the reach policy, a job waits on average 10 s.</p>`,
		"Made on 2026-11-24 14:00 UTC by</p>\n<pre>caelum simulate &#39;&lt;script&gt;&#39;</pre>",
		`<meta name="viewport" content="width=device-width, initial-scale=1">`,
		"<details><summary>reach</summary>",
		"job &lt;script&gt;alert(1)&lt;/script&gt;: 1g.5gb, 50 s",
		">GPU 1</text>",
		"seconds since the first submission",
		">10,000</text>",
		"<title>mean 12,345.6 s</title>",
		"Slices on each GPU",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, no := range []string{"<script", "NaN", "Inf", "http:", "https:", "e+0", "min-width", "<details open"} {
		if strings.Contains(page, no) {
			t.Errorf("the page contains %q", no)
		}
	}
	if strings.Index(page, `class="verdict"`) > strings.Index(page, "<pre>") {
		t.Error("the verdict is not above the command")
	}
	if n := len(regexp.MustCompile(`class="slice"`).FindAllString(page, -1)); n != 2 {
		t.Errorf("the page contains %d slices, want 2", n)
	}
	if n := strings.Count(page, "<polyline"); n != 3 {
		t.Errorf("the page contains %d lines, want 3: use, queue and fragmentation", n)
	}
}

// TestPageAtTheEdges tests a page without jobs, and a page with more than mostGPUs GPUs and mostSpans slices.
func TestPageAtTheEdges(t *testing.T) {
	empty := write(t, Page{Title: "nothing", Policies: []Policy{{Name: "reach", Recorded: &Recorder{}}}})
	if strings.Contains(empty, "NaN") || strings.Contains(empty, "Inf") {
		t.Error("a page without jobs contains NaN or Inf")
	}
	r := &Recorder{}
	for k := range mostSpans + 10 {
		r.Passed(float64(k), float64(k+1), 1, 0, 0)
		r.Ran(sim.Span{Job: "j", Profile: "1g.5gb", GPU: k % 20, Size: 1, From: float64(k), To: float64(k) + 5})
	}
	page := write(
		t,
		Page{
			Title:    "much",
			Grids:    slices.Repeat([]int{8}, 20),
			Loss:     true,
			Policies: []Policy{{Name: "reach", Recorded: r}},
		},
	)
	if !strings.Contains(page, "<summary>reach, only the beginning</summary>") ||
		!strings.Contains(page, "The drawing shows the first 16 of 20 GPUs.") ||
		strings.Contains(page, "How long jobs waited") {
		t.Error("the page of a large simulation does not mention the omitted parts, or shows waits without a queue")
	}
}

// TestVerdict tests the sentence that names the best policy.
func TestVerdict(t *testing.T) {
	queue := []Policy{
		{Reference: true, Name: "(as it was)", MeanWait: 1},
		{Name: "whole", MeanWait: 7200, Accepted: 0.5},
		{Name: "reach", MeanWait: 5400, Accepted: 0.75},
	}
	for name, c := range map[string]struct {
		page Page
		want string
	}{
		"no policy":  {Page{Policies: queue[:1]}, ""},
		"one policy": {Page{Policies: queue[:2]}, "With the whole policy, a job waits on average 2 hours."},
		"mean wait": {
			Page{Policies: queue},
			"For this workload, reach is the best policy: a job waits on average 90 minutes, 25% less than " +
				"with whole, the second best.",
		},
		"accepted": {
			Page{Policies: queue, Loss: true},
			"For this workload, reach is the best policy: it accepts 75% of the requested GPU time, 50% " +
				"more than with whole, the second best.",
		},
		"no difference": {
			Page{Policies: []Policy{{Name: "a"}, {Name: "b"}}},
			"For this workload, the a and b policies are equally good (difference below 1% or 1 s): with a, a " +
				"job waits on average 0 s.",
		},
		"a small one": {
			Page{Policies: []Policy{{Name: "a", MeanWait: 1000}, {Name: "b", MeanWait: 999}}},
			"For this workload, the b and a policies are equally good (difference below 1% or 1 s): with b, a " +
				"job waits on average 16.7 minutes.",
		},
		"less than a second": {
			Page{Policies: []Policy{{Name: "a", MeanWait: 0.7}, {Name: "b"}, {Name: "c", MeanWait: 1.5}, {Name: "d",
				MeanWait: 0.9}}},
			"For this workload, the b, a and d policies are equally good (difference below 1% or 1 s): with b, a " +
				"job waits on average 0 s.",
		},
		"a tie of accepted work": {
			Page{Loss: true, Policies: []Policy{{Name: "a", Accepted: 0.5}, {Name: "b", Accepted: 0.7}, {Name: "c",
				Accepted: 0.701}}},
			"For this workload, the c and b policies are equally good (difference below 1%): with c, it accepts " +
				"70.1% of the requested GPU time.",
		},
		"nothing waited": {
			Page{Policies: []Policy{{Name: "a", MeanWait: 50}, {Name: "b"}}},
			"For this workload, b is the best policy: a job waits on average 0 s, 100% less than with a, " +
				"the second best.",
		},
	} {
		if got := c.page.verdict(); got != c.want {
			t.Errorf("%s: the verdict is\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestMeans tests that each point of a line is the mean of the value over the point's interval.
func TestMeans(t *testing.T) {
	line := recorded().means(400, func(s step) float64 { return s.busy })
	if line[0] != 8 || line[points/4-1] != 8 || line[points/4] != 4 || line[points-1] != 4 {
		t.Errorf("the means are %v", line)
	}
	sum := 0.0
	for _, v := range line {
		sum += v / points
	}
	if math.Abs(sum-5) > 1e-9 {
		t.Errorf("the mean of the line is %v", sum)
	}
}

func TestTicks(t *testing.T) {
	for most, want := range map[float64][]float64{
		0:   {0},
		1:   {0, 0.2, 0.4, 0.6, 0.8, 1},
		7:   {0, 1, 2, 3, 4, 5, 6, 7},
		12:  {0, 2, 4, 6, 8, 10, 12},
		205: {0, 50, 100, 150, 200},
		0.5: {0, 0.1, 0.2, 0.3, 0.4, 0.5},
	} {
		got := ticks(most)
		for k := range got {
			got[k] = round(got[k])
		}
		if !slices.Equal(got, want) {
			t.Errorf("ticks(%v) returned %v, want %v", most, got, want)
		}
	}
	for n, want := range map[float64]string{
		0:         "0",
		999:       "999",
		1000:      "1,000",
		1234567.5: "1,234,567.5",
		0.125:     "0.125",
	} {
		if got := number(n); got != want {
			t.Errorf("number(%v) returned %s, want %s", n, got, want)
		}
	}
}
