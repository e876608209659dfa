package gpu_test

import (
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

// TestUnusedTypes checks which types of the `fractions` key are reported, also after the agent has prepared the GPUs.
func TestUnusedTypes(t *testing.T) {
	model, err := mig.ModelByName("A100-40GB")
	found, errGPUs := gputest.New(t, "L40S-48GB", 1).GPUs()
	if err != nil || errGPUs != nil {
		t.Fatal(err, errGPUs)
	}
	a100, l40s := gpu.GPU{Name: model.Device, Model: model}, found[0]
	beside := l40s
	beside.Model = nil
	broken := gpu.GPU{Problem: gpu.Lost}
	for _, tc := range []struct {
		name string
		gpus []gpu.GPU
		want string // what the only message contains; empty if there is none
	}{
		{"l40s", []gpu.GPU{l40s}, ""},
		{"l40", []gpu.GPU{l40s, l40s}, "this node has this type (the types without MIG on this node: l40s)"},
		{"l40", []gpu.GPU{a100}, "without MIG on this node: none)"},
		{"l40", []gpu.GPU{l40s, broken}, ""},
		{"a100", []gpu.GPU{a100}, "no a100: GPUs of this type support MIG"},
		{"l40s", []gpu.GPU{a100, beside}, "no l40s: GPUs of this type beside GPUs that support MIG"},
	} {
		managed := slices.Clone(tc.gpus)
		for i := range managed {
			managed[i] = managed[i].Managed(mig.FullGPUs{})
		}
		for _, gpus := range [][]gpu.GPU{tc.gpus, managed} {
			got := gpu.UnusedTypes(map[string]int{tc.name: 4}, gpus)
			if len(got) > 1 || (len(got) == 1) != (tc.want != "") || !strings.Contains(strings.Join(got, ""), tc.want) {
				t.Errorf("%s on %d GPUs: %q, want %q", tc.name, len(gpus), got, tc.want)
			}
		}
	}
}
