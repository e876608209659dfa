package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"caelum/internal/gpu"
)

var fileMinor = regexp.MustCompile(`(?m)^DeviceFileMinor: *([0-9]+)`)

// capPaths are the capability files of an instance of GPU minor: the driver names their minors under proc; where it does not,
// GI M has 3 + 135*minor + 9*M and its CI K that + 1 + K (nv-caps.c of the open kernel modules 595.45.04). It does not ask
// the agent's code, whose work is judged here.
func capPaths(dev, proc string, minor int, in gpu.Instance) []string {
	dir := filepath.Join(proc, "driver/nvidia/capabilities", fmt.Sprintf("gpu%d/mig/gi%d", minor, in.GI))
	first := 3 + 135*minor + 9*in.GI
	number := func(access string, otherwise int) string {
		text, _ := os.ReadFile(filepath.Join(dir, access))
		if m := fileMinor.FindSubmatch(text); m != nil {
			return string(m[1])
		}
		return fmt.Sprint(otherwise)
	}
	numbers := []string{number("access", first)}
	for _, ci := range in.CIs {
		numbers = append(numbers, number(fmt.Sprintf("ci%d/access", ci), first+1+ci))
	}
	for i, n := range numbers {
		numbers[i] = filepath.Join(dev, "nvidia-caps", "nvidia-cap"+n)
	}
	return numbers
}
