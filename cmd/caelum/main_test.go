package main

import (
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/slurm"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"caelum": main})
}

var update = flag.Bool("update", false, "rewrite the expected outputs in testdata and the pages in docs/reference")

// TestScripts runs the scripts in testdata/*.txtar. The scripts test the commands with an agent that has a constant
// state, and with two emulated A100 GPUs.
func TestScripts(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 2)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			run := filepath.Join(env.WorkDir, "run")
			if err := os.Mkdir(run, 0o755); err != nil {
				return err
			}
			l, err := api.Listen(run, nil)
			if err != nil {
				return err
			}
			server := api.NewServer(fixed{})
			go server.Serve(l)
			env.Defer(func() { server.Close() })
			env.Setenv("RUN", run)
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("NVML_EMULATOR_STATE", node.State)
			env.Setenv("LD_LIBRARY_PATH", node.Build())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "expand": expand},
	})
}

// status implements the scripts' "status N COMMAND" command. It runs COMMAND, which must end with exit status N. `!
// exec` would not check the value of the exit status.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [argument...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if e, ok := err.(interface{ ExitCode() int }); ok {
		got = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// expand implements the scripts' "expand FILE" command, which replaces the environment variables in FILE with their
// values.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o644))
}

// fixed is an agent that always gives the same answers.
type fixed struct{}

func (fixed) Lease(context.Context, uint32, api.LeaseRequest) (*api.Lease, error) {
	return nil, &api.Error{Code: 500, Message: "not in this test"}
}
func (fixed) Release(context.Context, uint32, int) error { return nil }

var lease = api.Lease{
	Job:   7,
	UID:   20001,
	Name:  "train\x1b[2J\n\u009b31m\u202e\x7f\U000e0001\xff",
	User:  "user1",
	Slots: []int{3},
	Since: 1700000000,
	Xids:  "31x3+94",
	Slices: []api.Slice{
		{
			Slot:         3,
			GPU:          0,
			Profile:      "3g.20gb",
			AdvertisedAs: "2g.20gb",
			Start:        4,
			Size:         4,
			MemoryMiB:    19968,
			UUID:         "MIG-7",
			Use: &api.Use{
				MemoryMiB: 5321.4, PeakMiB: 9000, Util: 0.37, Processes: 2, ForecastMiB: 22000, Exceeds: true,
			},
		},
	},
}

func (fixed) Job(_ context.Context, id uint32) (*api.Lease, error) {
	if id != lease.Job {
		return nil, api.NoLease(id)
	}
	return &lease, nil
}

// Adopt adopts only MIG-9. A request without UUIDs also returns MIG-8, which is not adopted.
func (fixed) Adopt(_ context.Context, req api.AdoptRequest) ([]api.Adoption, error) {
	nine := api.Adoption{
		Instance: api.Instance{
			Placement: api.Placement{Profile: "1g.5gb", Start: 2, Size: 1},
			GI:        7,
			UUID:      "MIG-9",
			State:     "idle",
		},
	}
	eight := api.Adoption{
		GPU: 1,
		Instance: api.Instance{
			Placement: api.Placement{Profile: "2g.10gb", Start: 4, Size: 2},
			GI:        3,
			UUID:      "MIG-8",
			State:     "foreign",
		},
		Reason: "processes [4711] are using the instance",
	}
	switch {
	case len(req.UUIDs) == 0:
		return []api.Adoption{nine, eight}, nil
	case req.UUIDs[0] == nine.UUID:
		return []api.Adoption{nine}, nil
	}
	return nil, &api.Error{
		Code:    http.StatusConflict,
		Message: "couldn't adopt: job 5 is on this node but has no lease; try again when the job has ended",
	}
}

// Readmit readmits only GPU 2.
func (fixed) Readmit(_ context.Context, index int) error {
	if index != 2 {
		return &api.Error{Code: http.StatusConflict, Message: "couldn't readmit GPU 1: it was not withdrawn"}
	}
	return nil
}

func (fixed) Status(context.Context) (*api.Status, error) {
	return &api.Status{
		Node:         "n1",
		PublishError: "slurmctld cannot be reached",
		Closed:       "IDLE+DRAIN",
		Profiles:     []string{"1g.5gb", "3g.20gb"},
		Stale:        []string{"1g.6gb"},
		Excess:       map[string]int{"7g.40gb": 2, "1g.5gb": 30},
		ExcessShort:  map[string]int{"1g.5gb": 9},
		Reserved: &api.Reservation{
			Job:    12,
			At:     1795237049,
			Slices: []api.ReservedSlice{{GPU: 1, Placement: api.Placement{Profile: "7g.40gb", Start: 0, Size: 8}}},
		},
		GPUs: []api.GPU{
			{
				Index:  0,
				Model:  "NVIDIA A100-SXM4-40GB",
				Layout: "|....|....|1g.5gb|....|3g.20gb=====|",
				Instances: []api.Instance{
					{Placement: api.Placement{Profile: "1g.5gb", Start: 2, Size: 1}, UUID: "MIG-9", State: "foreign"},
					{
						Placement: api.Placement{Profile: "3g.20gb", As: "2g.20gb", Start: 4, Size: 4},
						UUID:      "MIG-7",
						State:     "leased",
						Job:       7,
					},
				},
				Offers: []api.Placement{
					{Profile: "1g.5gb", Start: 0, Size: 1},
					{Profile: "1g.5gb", Start: 1, Size: 1},
					{Profile: "1g.5gb", As: "1g.6gb", Start: 3, Size: 1},
				},
				Unlisted: true,
				Xids: []api.XidCount{
					{Xid: 31, Text: "Xid 31 (memory page fault)", Count: 3, At: 1795237049, On: "3g.20gb at 4", Job: 7},
					{Xid: 154, Text: "Xid 154", Count: 1, At: 1795237050},
				},
			},
			{
				Index:   1,
				Model:   "NVIDIA A100-SXM4-40GB",
				Problem: "MIG mode is off; turn it on with `nvidia-smi -i 1 -mig 1`",
			},
			{
				Index:   2,
				Model:   "NVIDIA A100-SXM4-40GB",
				Problem: gpu.Withdrawn(2, 95),
				Xids:    []api.XidCount{{Xid: 95, Text: "Xid 95", Fatal: true, Count: 1, At: 1795237051}},
				Instances: []api.Instance{
					{
						Placement: api.Placement{Profile: "1g.5gb", Start: 2, Size: 1}, UUID: "MIG-5",
						State: "leased", Job: 9,
					},
					{Placement: api.Placement{Profile: "1g.5gb", Start: 3, Size: 1}, UUID: "MIG-6", State: "idle"},
				},
			},
		},
		Leases:           []api.Lease{lease},
		SummariesWaiting: 1,
	}, nil
}

// TestFind tests that find accepts job ids in squeue's format, including array tasks and components of het jobs.
func TestFind(t *testing.T) {
	jobs := []slurm.Job{{ID: 7}, {ID: 12, ArrayJob: 12, ArrayTask: "3-5"}, {ID: 14, ArrayJob: 12, ArrayTask: "2"}}
	for text, want := range map[string]uint32{"7": 7, "12": 12, "12_2": 14, "12_9": 12, "8": 8, "7+0": 7, "5+2": 7} {
		if got := find(jobs, text); got != want {
			t.Errorf("find(%q) returned %d, want %d", text, got, want)
		}
	}
	for _, text := range []string{
		"", "x", "12_", "12_x", "_2", "0", "-1", "12_2_3", "12+", "12+x", "+1", "12+1_2", "12_2+1", "12+1+1",
	} {
		if _, _, err := jobRef(text); err == nil {
			t.Errorf("jobRef accepts %q as a job id", text)
		}
	}
}
