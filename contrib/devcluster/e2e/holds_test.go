//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// held is a set of held jobs that no agent may release.
type held struct {
	s                  *site
	own, named, byHand string // held by the user at submission, at submission with -w, and after submission
	later              string // held by job_submit.lua, and not eligible for an hour
	releasedByItsUser  string
	admins             string
}

// holds submits and holds the jobs, and returns their ids.
func (s *site) holds(t *testing.T) held {
	t.Helper()
	const script = "./task holds"
	h := held{s: s,
		own:               s.submit(t, script, "--hold", "--gres=gpu:1"),
		named:             s.submit(t, script, "--hold", "-w", "n1", "--gres=gpu:1"),
		byHand:            s.submit(t, script, "--begin=now+3600", "--gres=gpu:1"),
		admins:            s.submit(t, script, "--begin=now+3600", "-w", "n1", "--gres=gpu:1"),
		later:             s.submit(t, script, "--begin=now+3600", "-w", "n1", "--gres=gpu:1"),
		releasedByItsUser: s.submit(t, "./task released", "--hold", "--gres=gpu:1"),
	}
	s.must(t, "", user, "scontrol", "hold", h.byHand)
	s.must(t, "", user, "scontrol", "update", "job="+h.byHand, "StartTime=now")
	s.must(t, "", "root", "scontrol", "hold", h.admins)
	s.must(t, "", "root", "scontrol", "update", "job="+h.admins, "StartTime=now")
	s.must(t, "", user, "scontrol", "release", h.releasedByItsUser)
	s.tagged(t, h.later, "caelum:held")
	for _, verb := range []string{"hold", "release"} {
		if a := s.call(t, "", user, "", "scontrol", verb, h.later); a.status == 0 {
			t.Errorf("slurmctld accepted the user's scontrol %s of a job that Caelum holds", verb)
		}
	}
	return h
}

// check checks that the jobs are still held after all other tests have run, and cancels them.
func (h held) check(t *testing.T) {
	t.Helper()
	s := h.s
	for what, id := range map[string]string{"--hold": h.own, "--hold -w": h.named, "scontrol hold": h.byHand,
		"an admin's hold": h.admins, "--begin -w": h.later} {
		if r, ok := s.row(t, id); !ok || r.state != "PENDING" || r.priority != "0" {
			t.Errorf("job %s (%s) is not held: %+v", id, what, r)
		}
	}
	for _, id := range []string{h.own, h.named} {
		if comment := s.field(t, id, "AdminComment"); strings.Contains(comment, "caelum:held") {
			t.Errorf("job %s is held by its user, but has Caelum's tag: %s", id, comment)
		}
	}
	s.completed(t, h.releasedByItsUser)
	s.held(t, "released", "1g.5gb")
	s.must(t, "", user, "scancel", h.own, h.named, h.byHand, h.admins, h.later)
	if all, _ := s.tasks(t, "holds"); len(all) > 0 {
		t.Errorf("a held job ran a task: %+v", all)
	}
}
