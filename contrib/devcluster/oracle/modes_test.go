package oracle

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// began is the time T+0 in the records below.
var began = time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)

var moments = regexp.MustCompile(`(ns|log|time|unix)\+([0-9.]+)`)

// timed replaces times such as ns+1.5 with the time 1.5 s after began, in nanoseconds, in the format of slurmctld's log
// or of the agent's log, or in seconds.
func timed(text string) string {
	return moments.ReplaceAllStringFunc(text, func(m string) string {
		kind, number, _ := strings.Cut(m, "+")
		seconds, _ := strconv.ParseFloat(number, 64)
		at := began.Add(time.Duration(seconds * 1e9))
		switch kind {
		case "ns":
			return fmt.Sprint(at.UnixNano())
		case "log":
			return at.Format("2006-01-02T15:04:05.000")
		case "time":
			return at.Format(time.RFC3339Nano)
		}
		return fmt.Sprint(at.Unix())
	})
}

// modes is the record of two jobs on a node with two GPUs. Job 1 has GPU 0 as a full GPU from 2 to 6 s, and job 2 has a
// slice of GPU 0 from 22 to 26 s. The MIG mode of GPU 0 is off from 1 to 21 s. Job 2 reads the rights on the files of
// both GPUs before its release, and job 3 without GPUs reads them at 12 s.
var modes = map[string]string{
	"run": "zone UTC\nnode n1 H100-80GB 2 full\n",
	"slurmctld": `[log+0] sched: Allocate JobId=1 NodeList=n1 #CPUs=1 Partition=gpu
[log+20] sched: Allocate JobId=2 NodeList=n1 #CPUs=1 Partition=gpu
`,
	"sacct": `1|COMPLETED|unix+0|unix+6|1|gres/gpu=1,gres/mig:full=1|
2|COMPLETED|unix+20|unix+26|1|gres/gpu=1,gres/mig:1g.10gb=1|
`,
	"n1.agent": `{"gpu":0,"job":1,"msg":"leased full at 0","time":"time+2","uuid":"GPU-a"}
{"job":1,"msg":"released","time":"time+6"}
{"gpu":0,"job":2,"msg":"leased 1g.10gb at 0","time":"time+22","uuid":"MIG-a"}
{"job":2,"msg":"released","time":"time+26"}
`,
	"n1.emulator": `ns+1 mig-mode gpu=0 gi=- rc=SUCCESS mig=off
ns+3 process-start gpu=0 gi=- start=- size=- uuid=GPU-a rc=SUCCESS pid=7 mig=-
ns+5 process-exit gpu=0 gi=- start=- size=- uuid=GPU-a rc=SUCCESS pid=7 mig=-
ns+21 mig-mode gpu=0 gi=- rc=SUCCESS mig=on
ns+21.1 create-gi gpu=0 gi=7 profile=1g.10gb start=0 size=1 rc=SUCCESS
ns+21.2 create-ci gpu=0 gi=7 profile=1g.10gb start=0 size=1 uuid=MIG-a rc=SUCCESS
`,
	"seen": `ran job=1 node=n1 uuid=GPU-a
file job=1 node=n1 at=ns+4 gpu=0 owner=20001 mode=600 user=20001
file job=1 node=n1 at=ns+4 gpu=1 owner=0 mode=666 user=20001
file job=3 node=n1 at=ns+12 gpu=0 owner=0 mode=600 user=20001
file job=2 node=n1 at=ns+25 gpu=0 owner=0 mode=666 user=20001
`,
}

// TestModes changes one detail of the record in each test case.
func TestModes(t *testing.T) {
	for _, c := range []struct{ name, file, old, new, rules string }{
		{"sound", "run", "", "", ""},
		{"the GPU is switched during the lease", "n1.emulator", "ns+21 mig-mode", "ns+4 mig-mode",
			"file instance switch"},
		{"the GPU is switched while a process uses it", "n1.emulator", "ns+5 process-exit", "ns+21.5 process-exit",
			"process switch"},
		{"a switch for no job", "n1.emulator", "ns+21.1", "ns+21.05 mig-mode gpu=1 rc=SUCCESS mig=off\nns+21.1",
			"switch"},
		{"back and forth after the jobs", "n1.emulator", "ns+21 mig-mode",
			"ns+8 mig-mode gpu=0 rc=SUCCESS mig=on\nns+9 mig-mode gpu=0 rc=SUCCESS mig=off\nns+21 mig-mode", "switch"},
		{"a slice on a GPU whose MIG mode is off", "n1.emulator", "ns+21 mig-mode gpu=0 gi=- rc=SUCCESS mig=on\n", "",
			"file overlap"},
		{"the mode is pending", "n1.emulator", "ns+1 mig-mode gpu=0 gi=- rc=SUCCESS mig=off",
			"ns+1 mig-mode gpu=0 gi=- rc=SUCCESS mig=on", "file instance"},
		{"another GPU is switched", "n1.emulator", "ns+1 mig-mode gpu=0", "ns+1 mig-mode gpu=1", "file instance"},
		{"slices for a job that wants a full GPU", "n1.agent", "leased full", "leased 7g.80gb", "carved file instance"},
		{"the process of a job with a slice uses the full GPU", "n1.emulator", "ns+3 process-start",
			"ns+1.5 process-start",
			"process"},
		{"the file of a full GPU is open to all users", "seen", "gpu=0 owner=20001 mode=600",
			"gpu=0 owner=20001 mode=666",
			"file"},
		{"the file of a full GPU belongs to root", "seen", "gpu=0 owner=20001", "gpu=0 owner=0", "file"},
		{"the file of an idle full GPU belongs to a user", "seen", "ns+12 gpu=0 owner=0", "ns+12 gpu=0 owner=20001",
			"file"},
		{"the file of a GPU with slices is closed", "seen", "gpu=0 owner=0 mode=666", "gpu=0 owner=0 mode=600", "file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range modes {
				if name == c.file {
					if !strings.Contains(text, c.old) {
						t.Fatalf("%s does not contain %q", name, c.old)
					}
					text = strings.Replace(text, c.old, c.new, 1)
				}
				files[name] = &fstest.MapFile{Data: []byte(timed(text))}
			}
			r := checked(t, files)
			if got := strings.Join(r.Rules(), " "); got != c.rules {
				t.Errorf("the oracle reports %q, want %q: %v", got, c.rules, r)
			}
			if c.name == "sound" && (r.Switches != 2 || r.Files != 4 || r.Leases != 2) {
				t.Errorf("the record was not checked completely: %v", r)
			}
		})
	}
}
