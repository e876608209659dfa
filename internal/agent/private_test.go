package agent

import (
	"testing"

	"caelum/internal/api"
)

// Users see of other users' jobs what slurmctld's configuration allows, and nothing as long as it is unknown.
func TestSight(t *testing.T) {
	w := newWorld(t, 1)
	a := w.current()
	see := func(what string, uid uint32, want api.Sight) {
		t.Helper()
		if got := a.Sight(uid); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	see("root before slurmctld answers", 0, api.SeesAll)
	see("a user before slurmctld answers", 20001, api.SeesOwn)
	see("SlurmUser before slurmctld answers", 64030, api.SeesOwn)
	w.fake.SetConfig("SlurmUser", "slurm(64030)")
	w.publish()
	see("a user", 20001, api.SeesJobs)
	see("SlurmUser", 64030, api.SeesAll)
	for _, c := range []struct {
		key, value string
		want       api.Sight
	}{
		{"PrivateData", "accounts,jobs", api.SeesOwn},
		{"PrivateData", "accounts,usage,users", api.SeesJobs},
		{"MCSParameters", "enforced,select,privatedata", api.SeesOwn},
	} {
		w.fake.SetConfig(c.key, c.value)
		a.learnPrivacy(t.Context())
		see(c.key+"="+c.value, 20001, c.want)
		see("root with "+c.key+"="+c.value, 0, api.SeesAll)
		w.fake.SetConfig(c.key, "")
	}
}
