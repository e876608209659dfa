//go:build e2e

package e2elearn

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// batched is a script that is twice as fast on 2g.10gb as on 1g.5gb, and uses 500 MiB for each sample of a batch. Its
// argument is the batch size. It first allocates 4,500 MiB, which fit on 1g.5gb, and then the rest of its memory.
const batched = `#!/bin/sh
#SBATCH --gres=gpu:1
#SBATCH --time=10
need=$((500 * $1)) first=$need seconds=4
[ $need -gt 4500 ] && first=4500
case $(cuda-process --print) in *profile=1g.5gb*) seconds=8;; esac
exec cuda-process --curve 0:$first,2:$first,3:$need,$seconds:$need
`

type profiled struct {
	Board string
	Runs  []struct {
		Job            uint32
		Profile, State string
		Seconds, Speed float64
		PeakMiB        float64 `json:"peak_mib"`
		OutOfMemory    bool    `json:"out_of_memory"`
	}
	Tightest string
}

// TestProfileJob checks that the table of caelum profile-job shows the correct measurements of a user's script on each
// profile, and that an interrupted call leaves no job.
func TestProfileJob(t *testing.T) {
	s := start(t, "poll_interval: 1s\nsample_interval: 200ms\n", cluster.Options{Nodes: 1, GPUs: 1})
	script := s.write("user1", "batched", batched)
	var both []profiled
	for _, batch := range []string{"4", "16"} {
		text := s.must("user1", "caelum", "profile-job", "--sbatch=--output=/dev/null", "--profiles", "1g.5gb,2g.10gb",
			"--json", script, batch)
		var p profiled
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Board != "A100-40GB" || len(p.Runs) != 2 {
			t.Fatalf("%v\n%s", err, text)
		}
		both = append(both, p)
	}
	s.measured(both[0], both[1])

	_, stderr, err := s.Exec(t.Context(), "user1", "timeout", "--signal=INT", "4",
		"caelum", "profile-job", "--sbatch=--output=/dev/null", "--profiles", "1g.5gb,7g.40gb",
		s.write("user1", "long", "#!/bin/sh\n#SBATCH --gres=gpu:1\nsleep 600\n"))
	if err == nil || !strings.Contains(stderr, "interrupted; cancelled the jobs 5 6") {
		t.Errorf("%v: %s", err, stderr)
	}
	s.until("", "squeue", "-h")
	s.until("CANCELLED by 20001\nCANCELLED by 20001", "sacct", "-X", "-n", "-P", "-j", "5,6", "-o", "State")
	_, stderr, err = s.Exec(t.Context(), "user1", "caelum", "profile-job", "--sbatch=--output=/dev/null",
		"--profiles", "1g.5gb", s.write("user1", "none", "#!/bin/sh\n"))
	if err == nil || !strings.Contains(stderr, "job 7 got no slice") {
		t.Errorf("%v: %s", err, stderr)
	}
}

// measured checks the runs of the batched script with a small and a large batch.
func (s site) measured(few, many profiled) {
	s.Helper()
	for i, want := range []struct {
		profile, state string
		least, most    float64 // MiB
	}{
		{"1g.5gb", "COMPLETED", 2000, 2000}, {"2g.10gb", "COMPLETED", 2000, 2000},
		{"1g.5gb", "FAILED", 4500, 4864}, {"2g.10gb", "COMPLETED", 8000, 8000},
	} {
		r := append(few.Runs, many.Runs...)[i]
		if r.Profile != want.profile || r.State != want.state || r.PeakMiB < want.least || r.PeakMiB > want.most ||
			r.OutOfMemory != (want.state == "FAILED") {
			s.Errorf("%+v, want %+v", r, want)
		}
		sacct := func(field string) string {
			return s.must("root", "sacct", "-X", "-n", "-P", "-j", fmt.Sprint(r.Job), "-o", field)
		}
		tres, name := sacct("AllocTRES"), sacct("JobName")
		if !strings.Contains(tres, "gres/mig:"+want.profile+"=1") || strings.TrimSpace(name) != "batched" {
			s.Errorf("job %d has the name %q and the GRES %s", r.Job, name, tres)
		}
	}
	if small, large := few.Runs[0], few.Runs[1]; small.Speed >= 0.9 || large.Speed != 1 {
		s.Errorf("%+v beside %+v", small, large)
	}
	if few.Tightest != "1g.5gb" || many.Tightest != "2g.10gb" {
		s.Errorf("%+v and %+v", few, many)
	}
}
