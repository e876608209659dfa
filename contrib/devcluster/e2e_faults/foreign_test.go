//go:build e2e

package e2efaults

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/node/api"
)

// TestByHand bypasses the agent to create an instance, and to remove a running job's instance.
func TestByHand(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 2})
	// The job uses no device, because the driver does not remove an instance in use.
	robbed := s.Submit("until [ -e end.robbed ]; do sleep 0.2; done", "--gres=mig:1g.5gb:1")
	s.Running(robbed)
	theirs := s.Slice("n1", robbed)
	status, err := s.Status("n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range status.GPUs[theirs.GPU].Instances {
		if in.UUID == theirs.UUID {
			s.Must("n1", "root", "nvml-emulator", "destroy", fmt.Sprint(theirs.GPU), fmt.Sprint(in.GI))
		}
	}
	other := 1 - theirs.GPU
	s.Must("n1", "root", "nvml-emulator", "create", fmt.Sprint(other), "3g.20gb", "4")

	foreign := s.foreignOn(other)
	s.Within("the agent has logged the removed instance and its job", func() bool { return s.reported(robbed) })

	// The GPUs do not have room for all of the following jobs, so some of them must wait.
	ids := []string{}
	for range 10 {
		ids = append(ids, s.Submit("./hold fill", "--gres=mig:1g.5gb:1"))
	}
	large := s.Submit("./hold large", "--gres=mig:7g.40gb:1")
	for range 20 {
		s.avoids(other, foreign)
	}
	s.Running(ids...)
	s.End("fill")
	s.End("robbed")
	s.Completed(append(ids, robbed)...)
	s.Running(large)
	if got := s.Slice("n1", large); got.GPU == other {
		t.Errorf("the agent leased a GPU that contains a foreign instance: %+v", got)
	}
	s.End("large")
	s.Completed(large)
	if shown := s.Must("n1", "root", "nvml-emulator", "show"); !strings.Contains(shown, foreign.UUID) {
		t.Errorf("the foreign instance %s no longer exists:\n%s", foreign.UUID, shown)
	}
	s.NoneDrained()

	s.Must("n1", "root", "nvml-emulator", "destroy", strconv.Itoa(other), strconv.Itoa(foreign.GI))
	if err := s.RestartUnit("agent-n1"); err != nil { // an agent reads the GPUs when it starts, and then once a minute
		t.Fatal(err)
	}
	s.NothingLeft()
}

// foreignOn waits until the agent of n1 shows a foreign instance on a GPU, and returns the instance.
func (s *site) foreignOn(gpu int) (foreign api.Instance) {
	s.t.Helper()
	s.Within("the agent shows the foreign instance", func() bool {
		status, err := s.Status("n1")
		if err != nil {
			return false
		}
		for _, in := range status.GPUs[gpu].Instances {
			if in.State == api.StateForeign {
				foreign = in
			}
		}
		return foreign.Profile != ""
	})
	return foreign
}

// avoids checks that none of the agent's offers and leases overlaps a foreign instance on a GPU.
func (s *site) avoids(gpu int, foreign api.Instance) {
	s.t.Helper()
	status, err := s.Status("n1")
	if err != nil {
		s.t.Fatal(err)
	}
	overlaps := func(start, size int) bool {
		return start < foreign.Start+foreign.Size && start+size > foreign.Start
	}
	for _, p := range status.GPUs[gpu].Offers {
		if overlaps(p.Start, p.Size) {
			s.t.Fatalf("the offered %s at %d overlaps the foreign instance %s at %d",
				p.Profile, p.Start, foreign.Profile, foreign.Start)
		}
	}
	for _, l := range status.Leases {
		for _, sl := range l.Slices {
			if sl.GPU == gpu && overlaps(sl.Start, sl.Size) {
				s.t.Fatalf("job %d holds %+v, which is a foreign instance", l.Job, sl)
			}
		}
	}
}

// reported reports whether the agent has logged an error about the job's instance.
func (s *site) reported(id string) bool {
	log, err := s.Log("agent-n1")
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		var entry struct {
			Level, Msg string
			Job        int
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" && strconv.Itoa(entry.Job) == id &&
			strings.Contains(entry.Msg, "removed by another program") {
			return true
		}
	}
	return false
}
