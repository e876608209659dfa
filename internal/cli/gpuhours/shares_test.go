package gpuhours

import (
	"fmt"
	"strings"
	"testing"

	"caelum/internal/core/predict"
)

// TestFractionShares checks the shares of fractions. The runs on a node show the number of units of its GPUs: a 1f.1gb
// of a T4 is one of 8 to 12 units, but if the node also has a 2f.3gb and a 4f.6gb, it is one of 9.
func TestFractionShares(t *testing.T) {
	for _, c := range []struct{ gpuType, profiles, want string }{
		{"l40s", "1f.11gb", "0.250"},
		{"L40S", "full 2f.22gb 1f.11gb", "1.000 0.500 0.250"},
		{"t4", "1f.1gb", "unknown"},
		{"t4", "1f.1gb 2f.3gb 4f.6gb", "0.111 0.222 0.444"},
		{"l4", "1f.11gb", "0.250"}, // of any model in models.txt
		{"l40s", "1f.99gb", "unknown"},
	} {
		known := nodes{}
		profiles := strings.Fields(c.profiles)
		for _, p := range profiles {
			known.seen(predict.Run{Node: "n1", GPUType: c.gpuType, Profile: p})
		}
		var got []string
		for _, p := range profiles {
			if share, ok := shareOf(p, known["n1"].models); ok {
				got = append(got, fmt.Sprintf("%.3f", share))
			} else {
				got = append(got, "unknown")
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s: %s, want %s", c.gpuType, c.profiles, text, c.want)
		}
	}
}
