package clients

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// tested lists the GPU models on which each client runs, and their compute capabilities according to NVIDIA's public
// table (developer.nvidia.com/cuda-gpus).
var tested = []struct{ name, capability string }{
	{"A30-24GB", "8.0"},
	{"A100-40GB", "8.0"},
	{"A100-80GB", "8.0"},
	{"H100-80GB", "9.0"},
	{"H100-NVL-94GB", "9.0"},
	{"H200-141GB", "9.0"},
	{"B200-180GB", "10.0"},
	{"RTX-PRO-6000-96GB", "12.0"},
}

// model is a GPU model in models.txt.
type model struct {
	name, device, capability string
	pciID                    uint64
	live                     bool // MIG mode changes without a reset
	profiles                 []profile
}

// profile is a GPU instance profile. Unpublished numbers are -1.
type profile struct {
	name                              string
	slices, size, limit, sms, memory  int
	copy, decoder, encoder, jpeg, ofa int
	starts                            int
}

// plain reports whether the profile has the usual engines, that is, its name has no attribute such as +me.
func (p profile) plain() bool { return !strings.ContainsAny(p.name, "+-") }

// eachModel runs a test on each of the tested GPU models, with -short only on one that changes MIG mode with a reset
// and one that changes it without.
func eachModel(t *testing.T, test func(t *testing.T, b model)) {
	all := readModels(t)
	for _, want := range tested {
		if testing.Short() && want.name != "A100-40GB" && want.name != "H100-80GB" {
			continue
		}
		t.Run(want.name, func(t *testing.T) {
			t.Parallel()
			b, ok := all[want.name]
			if !ok {
				t.Fatalf("models.txt does not contain %s", want.name)
			}
			b.capability = want.capability
			test(t, b)
		})
	}
}

func modelNamed(t *testing.T, name string) model {
	t.Helper()
	b, ok := readModels(t)[name]
	if !ok {
		t.Fatalf("models.txt does not contain %s", name)
	}
	return b
}

func readModels(t *testing.T) map[string]model {
	t.Helper()
	text, err := os.ReadFile("../../../internal/core/mig/models.txt")
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) int {
		if s == "-" {
			return -1
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("models.txt: %v", err)
		}
		return n
	}
	all := map[string]model{}
	var b model
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		switch {
		case len(w) > 6 && w[0] == "board":
			id, err := strconv.ParseUint(w[4], 0, 32)
			if err != nil {
				t.Fatalf("models.txt: %v", err)
			}
			b = model{name: w[1], pciID: id, live: w[5] == "live", device: strings.Join(w[6:], " ")}
		case len(w) > 15 && w[0] == "profile":
			b.profiles = append(b.profiles, profile{
				name: w[1], slices: number(w[3]), size: number(w[4]), limit: number(w[5]), sms: number(w[6]),
				memory: number(w[7]), copy: number(w[8]), decoder: number(w[9]), encoder: number(w[10]),
				jpeg: number(w[11]), ofa: number(w[12]), starts: strings.Count(w[15], ",") + 1,
			})
			all[b.name] = b
		}
	}
	return all
}
