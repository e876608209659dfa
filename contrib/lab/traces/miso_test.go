package traces

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"caelum/internal/sim/trace"
)

const (
	misoHead  = "job,model,trace_duration_s,exp_duration_s,num_iters\n"
	stepsHead = "model,batch,7g.40gb_mean_s,3g.20gb_mean_s,1g.5gb_mean_s\n"
)

func TestMISO(t *testing.T) {
	jobs := misoHead + "0,bert_train6,120,346,1000\n1,gnn_train64,120,346,0\n"
	steps := "1g.10gb_mean_s,batch,model,7g.40gb_mean_s,1g.5gb_mean_s\n0.2,6,bert,0.1,\n,64,gnn,0.5,2\n"
	w, err := MISO("jobs", strings.NewReader(jobs), "steps", strings.NewReader(steps), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Job{
		{ID: "0", Duration: 100, Speed: map[string]float64{"7g.40gb": 1, "1g.10gb": 0.5}},
		{ID: "1", Speed: map[string]float64{"7g.40gb": 1, "1g.5gb": 0.25}},
	}
	if !reflect.DeepEqual(w.Jobs, want) {
		t.Errorf("jobs\n%+v, want\n%+v", w.Jobs, want)
	}
}

func TestMISOMalformed(t *testing.T) {
	const job, step = "0,bert_train6,120,346,1000\n", "bert,6,0.1,0.2,\n"
	for _, c := range []struct{ jobs, steps, want string }{
		{misoHead, stepsHead + step, "jobs:1: no jobs"},
		{misoHead + job, stepsHead, "steps:1: no models"},
		{misoHead + job + job, stepsHead + step, "jobs:3: job 0 is already on line 2"},
		{misoHead + job[1:], stepsHead + step, "jobs:2: the job has no name"},
		{
			misoHead + "0,bert_train8,120,346,1000\n", stepsHead + step,
			`jobs:2: steps contains no model "bert" with batch size "8"`,
		},
		{
			misoHead + "0,bert,120,346,1000\n", stepsHead + step,
			`jobs:2: steps contains no model "bert" with batch size ""`,
		},
		{
			misoHead + "0,bert_train6,120,346,NaN\n", stepsHead + step,
			`jobs:2: num_iters: "NaN" is not a number from 0 to 1e12`,
		},
		{misoHead + job, stepsHead + step + step, "steps:3: model bert 6 is already on line 2"},
		{
			misoHead + job, stepsHead + "bert,6,0,0.2,1\n",
			"steps:2: 7g.40gb_mean_s is 0, but must be the duration of an iteration in seconds",
		},
		{
			misoHead + job, stepsHead + "bert,6,0.1,0.2,0\n",
			"steps:2: 1g.5gb_mean_s is 0, but must be the duration of an iteration in seconds",
		},
		{misoHead + job, stepsHead + "bert,6,,0.2,1\n", `steps:2: 7g.40gb_mean_s: "" is not a number from 0 to 1e12`},
		{
			misoHead + job, stepsHead + "bert,6,0.1,-1,\n",
			`steps:2: 3g.20gb_mean_s: "-1" is not a number from 0 to 1e12`,
		},
	} {
		_, err := MISO("jobs", strings.NewReader(c.jobs), "steps", strings.NewReader(c.steps), 60, 1)
		var at *trace.LineError
		if !errors.As(err, &at) || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
