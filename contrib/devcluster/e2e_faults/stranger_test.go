//go:build e2e

package e2efaults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// asStranger is an environment variable that makes the test binary act as a user's program that attacks other users'
// slices. Its value is the number of attempts to open files.
const asStranger = "FAULTS_OPENS"

// attempts holds the results of the attacks.
type attempts struct {
	Refused  int      // failed opens: EACCES (owner and mode of the file) and EPERM (devices cgroup)
	ByCgroup int      // failed opens that the devices cgroup denied
	Gone     int      // the file was removed between the listing and the open
	Opened   []string // permitted opens: success, or ENXIO because the file has no driver
	Own      []string // opened files of the job's own slice
	Changes  []int    // HTTP status codes of the requests for changes that were sent to the socket
	Other    []string
}

const opens = 1500

// monitor is the capability file for monitoring MIG. It belongs to no slice, and the driver gives all users access to
// it.
const monitor = "/dev/nvidia-caps/nvidia-cap2"

// beStranger repeatedly opens every capability file on the node, and asks the agent to change other users' leases.
func beStranger() int {
	var wanted int
	fmt.Sscan(os.Getenv(asStranger), &wanted)
	var got attempts
	agent := api.NewClient(api.DefaultRunDir)
	own := ownFiles(agent)
	for round := 0; got.Refused < wanted && len(got.Opened) == 0 && round < 10000; round++ {
		files, _ := filepath.Glob("/dev/nvidia-caps/nvidia-cap*")
		for _, file := range files {
			if file == monitor {
				continue
			}
			fd, err := syscall.Open(file, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			switch {
			case errors.Is(err, syscall.EACCES):
				got.Refused++
			case errors.Is(err, syscall.EPERM):
				got.Refused++
				got.ByCgroup++
			case errors.Is(err, syscall.ENOENT):
				got.Gone++
			case err == syscall.ENXIO && slices.Contains(own, file):
				got.Own = append(got.Own, file)
			default:
				got.Opened = append(got.Opened, fmt.Sprintf("%s: %v", file, err))
				if err == nil {
					syscall.Close(fd)
				}
			}
		}
		if round%20 == 0 && len(own) == 0 {
			got.askForChanges(agent)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		return 1
	}
	return 0
}

// ownFiles returns the capability files of the program's own slice. A job without a slice has none. While another job
// of the user sends many requests, the agent may refuse the request for the status, so ownFiles repeats it.
func ownFiles(agent *api.Client) (files []string) {
	status, err := agent.Status(context.Background())
	for tries := 0; err != nil && tries < 100; tries++ {
		time.Sleep(50 * time.Millisecond)
		status, err = agent.Status(context.Background())
	}
	if err != nil {
		return nil
	}
	for _, g := range status.GPUs {
		for _, in := range g.Instances {
			if job := os.Getenv("SLURM_JOB_ID"); job != "" && fmt.Sprint(in.Job) == job {
				files = append(
					files,
					gpu.Caps{Dev: "/dev", Proc: "/proc"}.Files(g.Index, gpu.Instance{GI: in.GI, CIs: []int{0}})...)
			}
		}
	}
	return files
}

// askForChanges requests a lease, and the end of every existing lease.
func (got *attempts) askForChanges(agent *api.Client) {
	ctx := context.Background()
	status, err := agent.Status(ctx)
	var limited *api.Error
	if errors.As(err, &limited) && limited.Code == http.StatusTooManyRequests {
		return // the next round repeats the requests
	}
	if err != nil {
		got.Other = append(got.Other, err.Error())
		return
	}
	note := func(err error) {
		var refused *api.Error
		switch {
		case err == nil:
			got.Changes = append(got.Changes, http.StatusOK)
		case errors.As(err, &refused):
			got.Changes = append(got.Changes, refused.Code)
		default:
			got.Other = append(got.Other, err.Error())
		}
	}
	for _, l := range status.Leases {
		note(agent.Release(ctx, l.Job, 1000))
		_, err := agent.Lease(
			ctx,
			l.Job,
			api.LeaseRequest{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Slots: l.Slots},
		)
		note(err)
	}
	_, err = agent.Lease(
		ctx,
		4_000_000,
		api.LeaseRequest{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Slots: []int{0}},
	)
	note(err)
}

// copyStranger copies the test binary to the user's home directory.
func (s *site) copyStranger() {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Write("stranger", string(program))
	if err := os.Chmod(s.Home(), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// be runs beStranger on n1 as a user.
func (s *site) be(who string, opens int) (got attempts) {
	s.t.Helper()
	out := s.Must("n1", who, "env", fmt.Sprintf("%s=%d", asStranger, opens), filepath.Join(s.Home(), "stranger"))
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		s.t.Fatal(err)
	}
	return got
}

// TestStranger starts and ends jobs of one user, and checks that another user on the jobs' node can neither open their
// slices nor change their leases.
func TestStranger(t *testing.T) {
	// The documentation recommends KeepDeviceFiles (NVreg_ModifyDeviceFiles=0), which ensures that no user can access a
	// capability file before it belongs to a job.
	s := start(t, cluster.Options{Nodes: 1, GPUs: 2, KeepDeviceFiles: true})
	s.copyStranger()
	keep := s.Submit("./hold keep", "--gres=mig:2g.10gb:1")
	s.Running(keep)
	slice := s.Slice("n1", keep)

	// To prove that it can detect a successful open, the program first opens the files of its own slice.
	if own := s.be(user, 1); len(own.Opened) == 0 {
		t.Fatalf("the owner of a slice opened no file of the slice: %+v", own)
	}

	before := len(s.leased())
	churn := s.shortJobs()
	var total attempts
	for s.State(churn[len(churn)-1]) != "COMPLETED" || total.Refused < opens {
		got := s.be(stranger, opens/5)
		total.Refused += got.Refused
		total.Opened = append(total.Opened, got.Opened...)
		total.Changes = append(total.Changes, got.Changes...)
		total.Other = append(total.Other, got.Other...)
	}
	came := len(s.leased()) - before
	s.Completed(churn...)
	total.check(t)
	if came == 0 {
		t.Error("the agent granted no lease during the attacks")
	}
	t.Logf("the agent granted %d leases during the attacks", came)
	if now := s.Slice("n1", keep); now != slice {
		t.Errorf("the running job held %+v before, and holds %+v now", slice, now)
	}
	s.End("keep")
	s.Completed(keep)
	s.NothingLeft()
}

// shortJobs submits jobs that run for a fraction of a second, and returns their ids.
func (s *site) shortJobs() (ids []string) {
	s.t.Helper()
	for range 24 {
		ids = append(ids, s.Submit("cuda-process --exclusive --seconds 0.3", "--gres=mig:1g.5gb:1"))
		ids = append(ids, s.Submit("cuda-process --exclusive --seconds 0.3", "--gres=mig:2g.10gb:1"))
		if len(ids)%12 == 0 {
			ids = append(ids, s.Submit("cuda-process --exclusive --seconds 0.3", "--gres=mig:4g.20gb:1"))
		}
	}
	return ids
}

// check fails the test if an open or a change succeeded, or if the program requested no change.
func (got *attempts) check(t *testing.T) {
	t.Helper()
	if len(got.Opened) > 0 {
		t.Errorf("%d opens succeeded, and %d failed: %.300q", len(got.Opened), got.Refused, got.Opened)
	}
	refused := 0
	for _, status := range got.Changes {
		if status == http.StatusForbidden || status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused != len(got.Changes) || refused == 0 || len(got.Other) > 0 {
		t.Errorf("the agent refused only %d of %d changes: %q", refused, len(got.Changes), got.Other)
	}
	t.Logf("%d of %d opens by another user succeeded, and the agent refused %d of %d changes",
		len(got.Opened), got.Refused+len(got.Opened), refused, len(got.Changes))
}

// leased returns the lines about leases in the log of n1's agent.
func (s *site) leased() (lines []string) {
	s.t.Helper()
	log, err := s.Log("agent-n1")
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"msg":"leased `) {
			lines = append(lines, line)
		}
	}
	return lines
}
