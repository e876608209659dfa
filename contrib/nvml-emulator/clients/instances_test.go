package clients

import (
	"regexp"
	"strconv"
)

// instance is a MIG device of the machine.
type instance struct {
	gpu, gi, ci   int
	profile, uuid string
}

var (
	gpuLine = regexp.MustCompile(`^GPU (\d+) `)
	giLine  = regexp.MustCompile(`^  GI +(\d+) (\S+) `)
	ciLine  = regexp.MustCompile(`^ +CI (\d+) (MIG-\S+)`)
)

// instances parses the output of `nvml-emulator show`.
func (m *machine) instances() []instance {
	m.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			m.Fatal(err)
		}
		return n
	}
	var all []instance
	var at instance
	for _, line := range regexp.MustCompile("\n").Split(m.ctl("show"), -1) {
		if w := gpuLine.FindStringSubmatch(line); w != nil {
			at.gpu = number(w[1])
		} else if w := giLine.FindStringSubmatch(line); w != nil {
			at.gi, at.profile = number(w[1]), w[2]
		} else if w := ciLine.FindStringSubmatch(line); w != nil {
			at.ci, at.uuid = number(w[1]), w[2]
			all = append(all, at)
		}
	}
	return all
}

// minors returns the minor numbers of the capability files of the GPU instance and the compute instance. They are those
// that were recorded on real machines: GPU 0 has 3 + 9 GI, and each further GPU 135 more.
func (i instance) minors() (gi, ci int) {
	gi = 3 + 135*i.gpu + 9*i.gi
	return gi, gi + 1 + i.ci
}
