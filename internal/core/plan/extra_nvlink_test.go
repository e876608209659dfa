package plan

import (
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/place"
)

// TestNVLink writes random groups into Extra and reads them back.
func TestNVLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := make([]place.GPU, rapid.IntRange(1, 16).Draw(t, "gpus"))
		for k := range gpus {
			gpus[k].NVLink = rapid.IntRange(0, 4).Draw(t, "group")
		}
		extra := WithNVLink("site=a caelum-nvlink=7 caelum=1;none", gpus)
		found := make([]place.GPU, len(gpus))
		setNVLink(found, extra)
		for a := range gpus {
			for b := range gpus {
				if (gpus[a].NVLink == 0) != (found[a].NVLink == 0) ||
					(gpus[a].NVLink == gpus[b].NVLink) != (found[a].NVLink == found[b].NVLink) {
					t.Fatalf("%s: GPUs %d and %d of %v are in the groups of %v", extra, a, b, gpus, found)
				}
			}
		}
		if StateIn(extra) != "1;none" || WithNVLink(extra, nil) != "site=a caelum=1;none" {
			t.Fatalf("the other entries changed: %s", extra)
		}
	})
}

func TestBadNVLink(t *testing.T) {
	for _, text := range []string{"0,4", "0,0", "0,1;1,2", "-1,2", "a", ";", "0,,1", "99999999999999999999"} {
		gpus := make([]place.GPU, 4)
		setNVLink(gpus, "caelum-nvlink="+text)
		for k, g := range gpus {
			if g.NVLink != 0 {
				t.Errorf("%s: GPU %d is in group %d", text, k, g.NVLink)
			}
		}
	}
}
