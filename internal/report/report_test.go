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
			Title: `jobs of <us> & "them"`,
			Facts: []string{"2 jobs on 2 GPUs", "omitted 1 job: no GPU"},
			Grids: []int{8, 8},
			Policies: []Policy{
				{Name: "(as it was)", MeanWait: 12345.6, LongestWait: 2e4},
				{
					Name:        "qla",
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
		"<td>12,346<td>",
		"<td>62.5%<td>0.00<td>2",
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
	for _, no := range []string{"<script", "NaN", "Inf", "http:", "https:", "e+0"} {
		if strings.Contains(page, no) {
			t.Errorf("the page contains %q", no)
		}
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
	empty := write(t, Page{Title: "nothing", Policies: []Policy{{Name: "qla", Recorded: &Recorder{}}}})
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

// TestMeans tests that each point of a line is the mean of the value over the interval of the point.
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
