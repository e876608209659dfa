package inventory

import (
	"slices"
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
