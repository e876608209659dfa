package place

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"caelum/internal/mig"
)

// The churn workload: Poisson arrivals, exponential service with a mean of an hour, a FIFO queue without backfill, exact
// ends. It is here to see that the policies do what they promise; the simulator is for judging them.
type churn struct {
	gpus int
	load float64 // offered, in units of memory
	mix  [6]float64
	jobs int
}

var churnProfiles = [6]string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
var churnUnits = [6]float64{1, 2, 2, 4, 4, 8}

var churnMixes = []struct {
	name string
	mix  [6]float64
}{
	{"uniform6", [6]float64{1, 1, 1, 1, 1, 1}},
	{"skew-small", [6]float64{.4, .1, .25, .1, .1, .05}},
	{"bimodal", [6]float64{.3, .1, .1, .1, .1, .3}},
	{"four-equal", [6]float64{1, 0, 1, 1, 1, 0}},
}

type churnJob struct {
	profile     string
	at, service float64
}

func (c churn) generate(seed uint64) []churnJob {
	rng := rand.New(rand.NewPCG(seed, 0))
	sum, units := 0.0, 0.0
	for i, w := range c.mix {
		sum += w
		units += w * churnUnits[i]
	}
	rate := c.load * float64(c.gpus) * 8 / (units / sum) / 3600
	var jobs []churnJob
	at := 0.0
	for range c.jobs {
		at += rng.ExpFloat64() / rate
		x := rng.Float64() * sum
		p := 0
		for x >= c.mix[p] {
			x -= c.mix[p]
			p++
		}
		jobs = append(jobs, churnJob{churnProfiles[p], at, 3600 * rng.ExpFloat64()})
	}
	return jobs
}

type ending struct {
	at     float64
	gpu, i int
}
type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any          { x := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return x }

func push(e *endings, x ending) { heap.Push(e, x) }
func pop(e *endings) ending     { return heap.Pop(e).(ending) }

// meanWait plays the jobs through a policy.
func meanWait(board *mig.Board, gpus int, jobs []churnJob, policy Policy) float64 {
	pool := NewPool(make([]GPU, gpus))
	for k := range gpus {
		pool.Set(k, GPU{Board: board})
	}
	s := &Situation{Pool: pool}
	var running endings
	var queue []churnJob
	next, total := 0, 0.0
	rng := rand.New(rand.NewPCG(7, 7))
	for next < len(jobs) || len(queue) > 0 {
		s.Now = math.Inf(1)
		if next < len(jobs) {
			s.Now = jobs[next].at
		}
		if len(running) > 0 && running[0].at <= s.Now {
			e := pop(&running)
			s.Now = e.at
			pool.Finish(e.gpu, e.i, false)
		} else {
			queue = append(queue, jobs[next])
			next++
		}
		for len(queue) > 0 {
			s.Behind = s.Behind[:0]
			for _, j := range queue[1:min(len(queue), 40)] {
				s.Behind = append(s.Behind, Request{j.profile, j.service})
			}
			s.Expected = s.Expected[:0]
			if next > 1 { // the rate and the mix of the last 200
				from := max(0, next-200)
				gap := (jobs[next-1].at - jobs[from].at) / float64(max(next-1-from, 1))
				at := s.Now
				for range 4 {
					at += rng.ExpFloat64() * gap
					like := jobs[from+rng.IntN(next-from)]
					s.Expected = append(s.Expected, Arrival{Request{like.profile, like.service}, at})
				}
			}
			c := policy.Choose(s, Request{queue[0].profile, queue[0].service})
			if c.Verdict != Here {
				break
			}
			pool.Start(c.GPU, c.Placement, s.Now+queue[0].service)
			push(&running, ending{s.Now + queue[0].service, c.GPU, c.Placement})
			total += s.Now - queue[0].at
			queue = queue[1:]
		}
	}
	return total / float64(len(jobs))
}

// CHURN=4000 go test -run Churn -v ./internal/place
func TestChurn(t *testing.T) {
	n := 600
	fmt.Sscan(os.Getenv("CHURN"), &n)
	board, err := mig.BoardByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	board = board.Select(mig.Plain)
	for _, m := range churnMixes {
		waits := map[string]float64{}
		for seed := uint64(101); seed <= 105; seed++ {
			jobs := churn{16, 0.85, m.mix, n}.generate(seed)
			for _, name := range []string{"best-fit", "reach", "fgd", "lifetime", "qla"} {
				policy, _ := ByName(name)
				waits[name] += meanWait(board, 16, jobs, policy) / 5
			}
		}
		t.Logf("%-10s best-fit %6.0f s; reach %.2f, fgd %.2f, lifetime %.2f, qla %.2f of it", m.name, waits["best-fit"],
			waits["reach"]/waits["best-fit"], waits["fgd"]/waits["best-fit"], waits["lifetime"]/waits["best-fit"], waits["qla"]/waits["best-fit"])
		if !(waits["qla"] < waits["lifetime"] && waits["lifetime"] < waits["best-fit"]) {
			t.Errorf("%s: mean waits %v", m.name, waits)
		}
	}
}
