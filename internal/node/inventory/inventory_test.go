package inventory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// TestSlots tests a node that also has GPUs without slices.
func TestSlots(t *testing.T) {
	for gres, want := range map[string][2]int{
		"gpu:a100:14,mig:1g.5gb:3,mig:closed:56":               {14, 56},
		"gpu:whole:1,gpu:a100:14,mig:1g.5gb:3,mig:closed:56":   {14, 56},
		"gpu:a100:14,gpu:h100:7,gpu:t4:2,mig:closed:84":        {21, 84},
		"gpu:a100:14,gpu:t4:2,mig:1g.5gb:3,mig:closed:53":      {14, 56},
		"gpu:14,mig:1g.5gb:3,mig:closed:53,nvme:3000,gpu:t4:1": {14, 56},
	} {
		list, err := slurm.ParseGRES(gres)
		if err != nil {
			t.Fatal(err)
		}
		node := slurm.Node{Gres: list}
		if slots, total := Slots(node, want[0]), GuessTotal(node); slots != want[0] || total != want[1] {
			t.Errorf("%s: %d slots and N = %d, want %v", gres, slots, total, want)
		}
	}
}

// TestOfferedByTwoModels tests a profile name that two GPU models have with different memory sizes. The result must
// have the smaller size, and its Whole field must be the largest profile of the first GPU model with this profile.
func TestOfferedByTwoModels(t *testing.T) {
	var found []gpu.GPU
	for i, name := range []string{"A100-40GB", "A100-80GB"} {
		b, err := mig.ModelByName(name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, gpu.GPU{Index: i, Model: b})
	}
	gpus, names, err := Divide(found, nil, mig.FullGPUs{})
	if err != nil {
		t.Fatal(err)
	}
	var got []Offered
	for _, name := range []string{"1g.5gb", "1g.10gb", "7g.80gb"} {
		got = append(got, offered(gpus, names, name))
	}
	want := []Offered{
		{TypedCount{"1g.5gb", 7}, 4864, "7g.40gb"},
		{TypedCount{"1g.10gb", 4 + 7}, 9728, "7g.40gb"},
		{TypedCount{"7g.80gb", 1}, 80384, "7g.80gb"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestEqualGPUsShareAModel checks that GPUs share a model, and thus its tables, exactly if their profiles are equal.
func TestEqualGPUsShareAModel(t *testing.T) {
	var found []gpu.GPU
	for i, name := range []string{"A100-40GB", "A100-80GB", "A100-40GB"} {
		b, err := mig.ModelByName(name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, gpu.GPU{Index: i, Model: b.Select(mig.Plain)})
	}
	gpus, _, err := Divide(found, nil, mig.FullGPUs{})
	if err != nil || gpus[0].Model != gpus[2].Model || gpus[0].Model == gpus[1].Model {
		t.Errorf("the models %p, %p and %p, %v", gpus[0].Model, gpus[1].Model, gpus[2].Model, err)
	}
}

// TestWithoutMIG tests a node with two models of GPUs without MIG. Each GPU has one slot.
func TestWithoutMIG(t *testing.T) {
	found := []gpu.GPU{
		{Index: 0, Model: mig.Without("Tesla T4"), Full: true, MemoryMiB: 15360, Problem: gpu.WithoutMIG},
		{Index: 1, Model: mig.Without("NVIDIA L40S"), Full: true, MemoryMiB: 46068, Problem: gpu.WithoutMIG},
	}
	gpus, names, err := Divide(found, nil, mig.FullGPUs{})
	if err != nil || !slices.Equal(names, []string{mig.Full}) {
		t.Fatalf("%v, %v", names, err)
	}
	if len(gpus[0].Slots) != 1 || len(gpus[1].Slots) != 1 || gpus[0].Model == gpus[1].Model {
		t.Errorf("%+v", gpus)
	}
	if got, want := offered(gpus, names, mig.Full), (Offered{TypedCount{mig.Full, 2}, 15360, ""}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestFractions tests a node with GPUs without MIG whose memory is divided. The profiles key restricts the fractions
// only if it names some, and never the full GPUs.
func TestFractions(t *testing.T) {
	var found []gpu.GPU
	for i := range 3 {
		b, err := mig.Fractions("NVIDIA L40S", 46068, 4)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, gpu.GPU{Index: i, Model: b, Full: true, MemoryMiB: 46068, Problem: gpu.WithoutMIG})
	}
	for _, c := range []struct{ named, profiles, slots string }{
		{"", "1f.11gb 2f.22gb full", "4 4 1"},
		{"1g.5gb", "1f.11gb 2f.22gb full", "4 4 1"},
		{"1g.5gb 2f.22gb", "2f.22gb full", "2 2 1"},
		{"2f.22gb full", "2f.22gb full", "2 2 1"},
	} {
		gpus, names, err := Divide(found, strings.Fields(c.named), mig.FullGPUs{})
		if err != nil || strings.Join(names, " ") != c.profiles || gpus[0].Model != gpus[1].Model {
			t.Errorf("%s: %v, %v", c.named, names, err)
		}
		last, _, err := Divide(found[2:], strings.Fields(c.named), mig.FullGPUs{Fixed: 3}) // always full
		if got := fmt.Sprint(len(gpus[0].Slots), len(gpus[2].Slots), len(last[0].Slots)); got != c.slots || err != nil {
			t.Errorf("%s: %s slots, %v, want %s", c.named, got, err, c.slots)
		}
	}
	if _, _, err := Divide(found, []string{"4f.44gb"}, mig.FullGPUs{}); err == nil ||
		!strings.Contains(err.Error(), "1f.11gb, 2f.22gb") {
		t.Errorf("an unknown fraction: %v", err)
	}
	gpus, names, _ := Divide(found, nil, mig.FullGPUs{})
	want := []Offered{{TypedCount{"1f.11gb", 12}, 11389, ""}, {TypedCount{"2f.22gb", 6}, 22778, ""},
		{TypedCount{mig.Full, 3}, 46068, ""}}
	for i, w := range want {
		if got := offered(gpus, names, w.Type); got != w || names[i] != w.Type {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
}

// fractional is a Hardware with one L40S whose memory is divided into four units.
type fractional struct{ gpu.Hardware }

func (fractional) GPUs() ([]gpu.GPU, error) {
	m, err := mig.Fractions("NVIDIA L40S", 46068, 4)
	return []gpu.GPU{{Model: m, Full: true, MemoryMiB: 46068, Problem: gpu.WithoutMIG}}, err
}

// TestReadFractions tests a node whose GPU has fractions. It has a slot for each unit, and no profile that stands for a
// whole GPU of MIG.
func TestReadFractions(t *testing.T) {
	got, err := Read(fractional{}, nil, mig.FullGPUs{})
	want := Inventory{
		Slots: []TypedCount{{"l40s", 4}},
		Most: []Offered{
			{TypedCount{"1f.11gb", 4}, 11389, ""},
			{TypedCount{"2f.22gb", 2}, 22778, ""},
			{TypedCount{mig.Full, 1}, 46068, ""},
		},
		Models: []Model{{"l40s", []string{"1f.11gb", "2f.22gb", mig.Full}, 4}},
		Total:  16,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}
