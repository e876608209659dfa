package gpuhours

import (
	"strings"

	"caelum/internal/mig"
)

// shareOf returns the share of a GPU that an instance of the profile occupies: its units divided by the units of the
// GPU. board is the GPU model as the Type in gres.conf, such as a100, or empty if unknown. ok is false if no known GPU
// model has the profile, or if the share differs between the models that board may stand for. For example, a 1g.10gb
// occupies a quarter of an A100-40GB and an eighth of an H100-80GB.
func shareOf(profile, board string) (share float64, ok bool) {
	if profile == mig.Full {
		return 1, true
	}
	for _, m := range mig.Models() {
		if board != "" && !strings.EqualFold(m.Type, board) {
			continue
		}
		k, has := m.ProfileIndex(profile)
		if !has {
			continue
		}
		s := float64(m.Profiles[k].Size) / float64(m.Grid)
		if ok && s != share {
			return 0, false
		}
		share, ok = s, true
	}
	return share, ok
}
