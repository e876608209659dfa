package traces

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

const podHead = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase," +
	"creation_time,deletion_time,scheduled_time\n"

func podLine(name string, gpus, milli int, created, deleted any) string {
	return fmt.Sprintf("%s,4000,8192,%d,%d,,LS,Running,%v,%v,\n", name, gpus, milli, created, deleted)
}

func TestAlibaba(t *testing.T) {
	w, err := Alibaba("pods.csv", strings.NewReader("\ufeff\"name\""+strings.TrimPrefix(podHead, "name")+"\n"+
		podLine("late", 1, 1000, 500, 900)+
		podLine("early", 1, 130, 400, 401)+
		podLine("cpu", 0, 0, 450, 600)+
		podLine("pair", 2, 1000, 450, 600)+
		podLine("no time", 1, 500, 500, 500)+
		podLine("backwards", 1, 500, 500, 499)+
		podLine("long before", 1, 500, 1, 9000)), false)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Job{
		{ID: "early", Submit: 0, Duration: 1, Compute: .13, Memory: .13},
		{ID: "late", Submit: 100, Duration: 400, Compute: 1, Memory: 1},
		{ID: "no time", Submit: 100, Compute: .5, Memory: .5},
	}
	if !reflect.DeepEqual(w.Jobs, want) {
		t.Errorf("jobs\n%+v, want\n%+v", w.Jobs, want)
	}
	left := []trace.Left{
		{Reason: "creation time is an outlier", Jobs: 1},
		{Reason: "no GPU", Jobs: 1},
		{Reason: "more than one GPU", Jobs: 1},
		{Reason: "deleted before it was created", Jobs: 1},
	}
	if !reflect.DeepEqual(w.Left, left) {
		t.Errorf("left out %+v", w.Left)
	}
}

// TestAlibabaMultiGPU checks that pods with several GPUs become jobs that need full GPUs on one node.
func TestAlibabaMultiGPU(t *testing.T) {
	w, err := Alibaba("pods.csv", strings.NewReader(podHead+
		podLine("one", 1, 500, 100, 200)+
		podLine("cpu", 0, 0, 110, 200)+
		podLine("eight", 8, 1000, 120, 200)+
		podLine("backwards", 2, 1000, 130, 129)), true)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Job{
		{ID: "one", Submit: 0, Duration: 100, Compute: .5, Memory: .5},
		{ID: "eight", Submit: 20, Duration: 80, Profile: mig.Full, Slices: 8},
	}
	left := []trace.Left{{Reason: "no GPU", Jobs: 1}, {Reason: "deleted before it was created", Jobs: 1}}
	if !reflect.DeepEqual(w.Jobs, want) || !reflect.DeepEqual(w.Left, left) {
		t.Errorf("%+v, left out %+v", w.Jobs, w.Left)
	}
	b, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	full := b.Select(mig.Plain).WithFull(80 << 10)
	w.Only([][]*mig.Model{slices.Repeat([]*mig.Model{full}, 4), slices.Repeat([]*mig.Model{full}, 4)}, false)
	if len(w.Jobs) != 1 { // no node has eight GPUs
		t.Errorf("%+v", w.Jobs)
	}
}

// TestGRMU checks that GRMU selects the profile whose compute x memory / 56 is nearest to the pod's request divided by
// the largest request.
func TestGRMU(t *testing.T) {
	w, err := GRMU("pods.csv", strings.NewReader(podHead+
		podLine("a", 1, 500, 100, 200)+
		podLine("b", 0, 0, 110, 200)+
		podLine("c", 1, 240, 120, 200)+
		podLine("d", 1, 20, 130, 130)+
		podLine("e", 2, 1000, 140, 200)+
		podLine("f", 1, 1000, 140, 139)))
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Job{ // the largest request is 0.5, so the share of c is 0.48 and the share of d is 0.04
		{ID: "a", Submit: 0, Duration: 100, Profile: "7g.40gb"},
		{ID: "b", Submit: 10, Duration: 90, Profile: "1g.5gb"},
		{ID: "c", Submit: 20, Duration: 80, Profile: "4g.20gb"},
		{ID: "d", Submit: 30, Duration: 0, Profile: "1g.10gb"},
	}
	left := []trace.Left{{Reason: "more than one GPU", Jobs: 1}, {Reason: "deleted before it was created", Jobs: 1}}
	if !reflect.DeepEqual(w.Jobs, want) || !reflect.DeepEqual(w.Left, left) {
		t.Errorf("%+v, left out %+v", w.Jobs, w.Left)
	}
}

func TestMalformed(t *testing.T) {
	good := podLine("a", 1, 500, 100, 200)
	const range1e12 = "is not a number from 0 to 1e12"
	for _, c := range []struct{ text, want string }{ // want is the beginning of the error; $ marks the end of the error
		{"", "pods.csv:1: the file is empty; the first line must contain the column names"},
		{podHead, "pods.csv:1: no pods"},
		{
			"name,num_gpu\n",
			"pods.csv:1: the table lacks column gpu_milli, creation_time, deletion_time; the columns are name, num_gpu",
		},
		{"name,name\n", "pods.csv:1: column \"name\" appears twice"},
		{podHead + good + good, "pods.csv:3: pod a is already on line 2"},
		{podHead + good + podLine("", 1, 500, 100, 200), "pods.csv:3: the pod has no name"},
		{podHead + good + "b,1,2\n", "pods.csv:3: the line has 3 values, but the table has 11 columns"},
		{podHead + podLine("a", 1, 500, "soon", 200), `pods.csv:2: creation_time: "soon" ` + range1e12},
		{podHead + podLine("a", 1, 500, "NaN", 200), `pods.csv:2: creation_time: "NaN" ` + range1e12},
		{podHead + podLine("a", 1, 500, -1, 200), `pods.csv:2: creation_time: "-1" ` + range1e12},
		{podHead + podLine("a", 1, 500, 1, "1e999"), `pods.csv:2: deletion_time: "1e999" ` + range1e12},
		{podHead + podLine("a", 1, 1500, 1, 2), "pods.csv:2: gpu_milli is 1500, but must be at most 1000"},
		{podHead + podLine("a", 1, 500, 1, "1e308"), `pods.csv:2: deletion_time: "1e308" ` + range1e12},
		{
			podHead + podLine("a", 1, 500, strings.Repeat("9", 1000), 2),
			`pods.csv:2: creation_time: "` + strings.Repeat("9", 60) + `" is not a number`,
		},
		{
			podHead + good + "b,4000,8192,0.5,500,,LS,Running,100,200,\n",
			"pods.csv:3: num_gpu is 0.5, but must be a whole number",
		},
		{podHead + good + "\"b,1\n" + good + good, `pods.csv:3: extraneous or missing " in quoted-field`},
		{"\x00\x01\x02", "pods.csv:1: the file is not UTF-8 text; unpack or convert the file first"},
		{podHead + good + "\x00", "pods.csv:3: the file is not UTF-8 text"},
		{
			strings.Repeat("x", 1000) + "\n",
			"pods.csv:1: the table lacks column name, num_gpu, gpu_milli, creation_time, deletion_time; " +
				"the columns are " + strings.Repeat("x", 300) + "$",
		},
	} {
		_, err := Alibaba("pods.csv", strings.NewReader(c.text), true)
		var at *trace.LineError
		if !errors.As(err, &at) || !strings.HasPrefix(err.Error()+"$", c.want) {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
		if _, err := GRMU("pods.csv", strings.NewReader(c.text)); err == nil {
			t.Errorf("%.60q: GRMU returns no error", c.text)
		}
	}
}
