//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/node/api"
)

// quietly returns the site. At the end of the test, a cleanup waits until nothing is left of the test's jobs, and
// checks the logs.
func quietly(t *testing.T, s *site) *site {
	t.Helper()
	t.Cleanup(func() {
		var left string
		for range 100 {
			if left = s.leftovers(); left == "" {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		if left != "" {
			t.Errorf("the test's jobs left traces:\n%s", left)
		}
		leases := 0
		for _, node := range s.nodes {
			log, err := s.Log("agent-" + node)
			if err != nil {
				t.Error(err)
			}
			n, problems := sharedLeases(log)
			leases += n
			problems = append(
				problems,
				sharedDevices(s.must(t, node, "root", "cat", "/run/nvml-emulator/state.log"))...)
			for _, problem := range problems {
				t.Errorf("%s: %s", node, problem)
			}
			if t.Failed() {
				t.Logf("last lines in the log of %s's agent:\n%s", node, agentSaid(log))
			}
		}
		if leases == 0 {
			t.Error("the agents' logs contain no lease, so the checks of the logs prove nothing")
		}
	})
	return s
}

// leftovers lists what is left of jobs: the jobs themselves, leases, lease files, entries in the job map, drained
// nodes, and instances that are not idle.
func (s *site) leftovers() string {
	var left []string
	say := func(what, text string) {
		if text = strings.TrimSpace(text); text != "" {
			left = append(left, what+": "+text)
		}
	}
	say("jobs", s.try("", "root", "squeue", "-h"))
	for _, node := range s.nodes {
		if state := strings.TrimSpace(s.try("", "root", "sinfo", "-h", "-p", "plain", "-n", node, "-o",
			"%T %E")); state != "idle none" {
			say("state of "+node, state)
		}
		say("lease files on "+node, s.try(node, "root", "ls", "-A", "/run/caelum/jobs"))
		say("job map of "+node, s.try(node, "root", "find", "/run/caelum", "-path", "*/jobmap/*"))
		status, err := s.status(node)
		if err != nil {
			say("status of "+node, err.Error())
			continue
		}
		for _, l := range status.Leases {
			say("lease on "+node, fmt.Sprintf("%+v", l))
		}
		say("publishing on "+node, status.PublishError)
		for _, g := range status.GPUs {
			say(fmt.Sprintf("GPU %d of %s", g.Index, node), g.Problem)
			for _, in := range g.Instances {
				if in.State != api.StateIdle {
					say("instance on "+node, fmt.Sprintf("%+v", in))
				}
			}
		}
		if _, _, err := s.ExecNode(context.Background(), node, "root", "nvml-emulator", "check"); err != nil {
			say("GPUs of "+node, s.try(node, "root", "nvml-emulator", "check"))
		}
	}
	return strings.Join(left, "\n")
}

// status returns the status of a node's agent.
func (s *site) status(node string) (*api.Status, error) {
	out, stderr, err := s.ExecNode(context.Background(), node, "root", "caelum", "status", "--json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr)
	}
	var status api.Status
	return &status, json.Unmarshal([]byte(out), &status)
}

// read returns the contents of a file in the user's home directory.
func (s *site) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.home(), name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// script writes a bash script to the user's home directory.
func (s *site) script(t *testing.T, name, text string) {
	t.Helper()
	if err := s.writeHome(name, "#!/bin/bash\n"+text+"\n"); err != nil {
		t.Error(err)
	}
}
