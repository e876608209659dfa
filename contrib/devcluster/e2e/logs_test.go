//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// sharedLeases replays an agent's log. It returns the number of leases, and a line for each leased slice that
// overlapped another job's slice.
func sharedLeases(log string) (leases int, problems []string) {
	type unit struct {
		gpu float64
		at  int
	}
	holder := map[unit]float64{}
	for line := range entries(log) {
		message, _ := line["msg"].(string)
		job, _ := line["job"].(float64)
		if message == "released" {
			for u, j := range holder {
				if j == job {
					delete(holder, u)
				}
			}
			continue
		}
		var profile string
		var start int
		if n, _ := fmt.Sscanf(message, "leased %s at %d", &profile, &start); n != 2 {
			continue
		}
		leases++
		gpu, _ := line["gpu"].(float64)
		for at := start; at < start+size[profile]; at++ {
			if other, taken := holder[unit{gpu, at}]; taken {
				problems = append(
					problems,
					fmt.Sprintf("unit %d of GPU %v is leased to job %v while job %v holds it", at, gpu, job, other),
				)
			}
			holder[unit{gpu, at}] = job
		}
	}
	return leases, problems
}

// size maps the profiles of an A100-40GB to their sizes in units.
var size = map[string]int{"1g.5gb": 1, "1g.10gb": 2, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}

// sharedDevices replays the emulator's log and returns the GPU instances that two processes used at the same time.
func sharedDevices(log string) (problems []string) {
	holder := map[string]string{}
	for line := range strings.Lines(log) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		said := map[string]string{}
		for _, word := range f[2:] {
			key, value, _ := strings.Cut(word, "=")
			said[key] = value
		}
		device := said["gpu"] + "/" + said["gi"]
		switch f[1] {
		case "process-start":
			if other := holder[device]; other != "" {
				problems = append(
					problems,
					fmt.Sprintf("process %s uses GPU instance %s at the same time as process %s",
						said["pid"], device, other),
				)
			}
			holder[device] = said["pid"]
		case "process-exit", "process-oom", "process-gone":
			delete(holder, device)
		}
	}
	return problems
}

// entries returns the parsed lines of an agent's log.
func entries(log string) func(func(map[string]any) bool) {
	return func(yield func(map[string]any) bool) {
		for line := range strings.Lines(log) {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && !yield(entry) {
				return
			}
		}
	}
}

func (s *site) agentLog(t *testing.T, node string) func(func(map[string]any) bool) {
	t.Helper()
	log, err := s.Log("agent-" + node)
	if err != nil {
		t.Error(err)
	}
	return entries(log)
}

// agentSaid returns the last lines of an agent's log, except those about publishing.
func agentSaid(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"msg":"published"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-30):], "")
}

// TestSearchesFind checks that sharedLeases and sharedDevices find the conflicts in prepared logs.
func TestSearchesFind(t *testing.T) {
	const first, second, released = `{"msg":"leased 3g.20gb at 0","gpu":1,"job":7}
`, `{"msg":"leased 1g.5gb at 3","gpu":1,"job":8}
`, `{"msg":"released","job":7}
`
	if n, problems := sharedLeases(first + second); n != 2 || len(problems) != 1 {
		t.Errorf("two leases of one unit give %d leases and the problems %q", n, problems)
	}
	if n, problems := sharedLeases(first + released + second); n != 2 || len(problems) != 0 {
		t.Errorf("two consecutive leases give %d leases and the problems %q", n, problems)
	}
	const a, b, end = "1 process-start gpu=0 gi=7 pid=11\n", "2 process-start gpu=0 gi=7 pid=12\n",
		"2 process-gone gpu=0 gi=7 pid=11\n"
	if problems := sharedDevices(a + b); len(problems) != 1 {
		t.Errorf("two processes on one instance give the problems %q", problems)
	}
	if problems := sharedDevices(a + end + b); len(problems) != 0 {
		t.Errorf("two consecutive processes give the problems %q", problems)
	}
}
