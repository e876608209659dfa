package jobreport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// at returns the time this many seconds after the beginning of the test.
func at(seconds int64) time.Time { return time.Unix(1_800_000_000+seconds, 0) }

// record returns the record of a run of job 7 that began after 100 s and took an hour, and whose time limit was two
// hours.
func record(change func(*slurm.Allocation)) slurm.Allocation {
	a := slurm.Allocation{Submitted: at(0), Limit: 2 * time.Hour}
	a.ID, a.Ref, a.Index, a.UID, a.State, a.Nodes = 7, "7", 1, 1001, "COMPLETED", []string{"n1"}
	a.Start, a.End = at(100), at(3700)
	change(&a)
	return a
}

// slicesOf sets the requested and allocated slices.
func slicesOf(a *slurm.Allocation, profile string, count int) {
	a.Requested = slurm.GRESList{{Name: "gpu", Count: count}, {Name: "mig", Type: profile, Count: count}}
	a.Allocated = a.Requested
}

// ran returns the summary of a run with the given peak in MiB, or without one if peak is 0.
func ran(profile, gpuType string, peak int, more string) string {
	text := fmt.Sprintf("caelum:run=n1,%s,%s,at=%d,ran=3600s", profile, gpuType, at(101).Unix())
	if peak > 0 {
		text += fmt.Sprintf(",peak=%dm,p95=1m,median=1m,samples=9", peak)
	}
	return text + more
}

// adviceCases holds the records for TestAdvice, and the topics of the advice with the lines to paste.
var adviceCases = []struct {
	name   string
	change func(*slurm.Allocation)
	now    int64 // seconds
	want   string
}{
	{"well sized", func(a *slurm.Allocation) {
		slicesOf(a, "2g.10gb", 1)
		a.Text = ran("2g.10gb", "a100", 9000, "")
	}, 9000, "well sized"},
	{"several slices per node keep their number", func(a *slurm.Allocation) {
		slicesOf(a, "3g.20gb", 2)
		a.Text = ran("3g.20gbx2", "a100", 2000, "")
	}, 9000, "too large [#SBATCH --gres=gpu:2,mig:1g.5gb:2]; too large [#SBATCH --gres=gpu:2]"},
	{"slices of several profiles", func(a *slurm.Allocation) {
		slicesOf(a, "3g.20gb", 1)
		a.Requested = append(a.Requested, slurm.GRES{Name: "mig", Type: "1g.5gb", Count: 1})
		a.Allocated, a.Text = a.Requested, ran("3g.20gb", "a100", 2000, "")
	}, 9000, "unclear"},
	{"an A100-40GB has a smaller profile, an A100-80GB does not", func(a *slurm.Allocation) {
		slicesOf(a, "1g.10gb", 1)
		a.Text = ran("1g.10gb", "a100", 2000, "")
	}, 9000, "unclear [#SBATCH --gres=gpu:1 #SBATCH --mig-mem=2100]"},
	{"the first run of a script", func(a *slurm.Allocation) {
		slicesOf(a, "7g.40gb", 1)
		a.Comment = "caelum:work=76723e9031f3c559 caelum:sized=7g.40gb caelum:by=default"
		a.Text = ran("7g.40gb", "a100", 4200, "")
	}, 9000, "too large; too large [#SBATCH --gres=gpu:1,mig:1g.5gb:1]"},
	{"a run with --mig=off", func(a *slurm.Allocation) {
		slicesOf(a, "7g.40gb", 1)
		a.Comment = "caelum:work=76723e9031f3c559 caelum:sized=7g.40gb caelum:by=off"
		a.Text = ran("7g.40gb", "a100", 4200, "")
	}, 9000, "too large [#SBATCH --gres=gpu:1]; too large [#SBATCH --gres=gpu:1,mig:1g.5gb:1]"},
	{"a full GPU", func(a *slurm.Allocation) {
		slicesOf(a, "full", 1)
		a.Text = ran("full", "a100", 9000, "")
	}, 9000, "too large [#SBATCH --gres=gpu:1,mig:1g.10gb:1]; too large [#SBATCH --gres=gpu:1]"},
	{"a full GPU has more memory than its largest profile", func(a *slurm.Allocation) {
		slicesOf(a, "full", 1)
		a.Text = ran("full", "h200", 147000, "")
	}, 9000, "well sized"},
	{"two full GPUs can communicate", func(a *slurm.Allocation) {
		slicesOf(a, "full", 2)
		a.Text = ran("fullx2", "h100", 9000, "")
	}, 9000, "well sized"},
	{"out of memory on the largest profile", func(a *slurm.Allocation) {
		slicesOf(a, "7g.40gb", 1)
		a.State, a.Exit, a.Text = "FAILED", 1, ran("7g.40gb", "a100", 40000, "")
	}, 9000, "out of memory"},
	{"out of memory although it may grow", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.State, a.Comment = "FAILED", "caelum:grow=oom caelum:sized=1g.5gb"
		a.Text = ran("1g.5gb", "a100", 1000, ",end=oom")
	}, 9000, "out of memory [#SBATCH --gres=gpu:1,mig:1g.10gb:1]"},
	{"a component of a het job does not grow", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Ref, a.State, a.Text = "7+0", "FAILED", ran("1g.5gb", "a100", 4700, "")
	}, 9000, "7+0 out of memory [#SBATCH --gres=gpu:1,mig:1g.10gb:1]"},
	{"host memory", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.State, a.Text = "OUT_OF_MEMORY", ran("1g.5gb", "a100", 4700, "")
	}, 9000, "out of memory"},
	{"another failure", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.State, a.Exit, a.Text = "FAILED", 2, ran("1g.5gb", "a100", 1000, "")
	}, 9000, "unclear"},
	{"the time limit was reached", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.State, a.Limit, a.Text = "TIMEOUT", time.Hour, ran("1g.5gb", "a100", 1000, "")
	}, 9000, "unclear; time limit [#SBATCH --time=01:30:00]"},
	{"a long time limit", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Limit, a.Text = 48*time.Hour, ran("1g.5gb", "a100", 1000, "")
	}, 9000, "well sized; time limit [#SBATCH --time=01:30:00]"},
	{"a larger slice hides the run time on the requested one", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Limit, a.Text = 48*time.Hour, ran("7g.40gb", "a100", 1000, "")
	}, 9000, "well sized"},
	{"the peak fits only into the larger slice that the job got", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Comment, a.Text = "caelum:sized=1g.5gb", ran("7g.40gb", "a100", 7000, "")
	}, 9000, "too small [#SBATCH --gres=gpu:1 #SBATCH --mig-mem=7350]"},
	{"a GPU without MIG", func(a *slurm.Allocation) {
		slicesOf(a, "full", 1)
		a.Text = ran("full", "l40s", 3000, "")
	}, 9000, "well sized"},
	{"a GPU without MIG instead of a slice", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Comment, a.Text = "caelum:sized=1g.5gb", ran("full", "l40s", 7000, "")
	}, 9000, "too small [#SBATCH --gres=gpu:1 #SBATCH --mig-mem=7350]"},
	{"no use of GPU memory", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Text = ran("1g.5gb", "a100", 0, ",peak=0m,p95=0m,median=0m,samples=9")
	}, 9000, "unclear"},
	{"no summary yet", func(a *slurm.Allocation) { slicesOf(a, "1g.5gb", 1) }, 3750, "not measured"},
	{"too short for a sample", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Text = ran("1g.5gb", "a100", 0, "")
	}, 9000, "not measured"},
	{"running", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Ref, a.State, a.End = "5_2", "RUNNING", time.Time{}
	}, 3750, "not ended [srun --jobid 7 --overlap caelum job 7]"},
	{"waiting tasks", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.Ref, a.State, a.Start, a.End, a.Nodes = "7_[3,5-9%2]", "PENDING", time.Time{}, time.Time{}, nil
	}, 3750, "not ended [caelum explain 7_3]"},
	{"on a GPU without Caelum", func(a *slurm.Allocation) {
		a.Requested = slurm.GRESList{{Name: "gpu", Count: 1}}
		a.Allocated, a.State, a.End = a.Requested, "RUNNING", time.Time{}
	}, 3750, "not ended"},
	{"AccountingStorageTRES does not contain gres/mig", func(a *slurm.Allocation) {
		a.Requested = slurm.GRESList{{Name: "gpu", Count: 1}}
		a.Allocated, a.State, a.End = a.Requested, "RUNNING", time.Time{}
		a.Comment = "caelum:key=c5c7ae8f58618928"
	}, 3750, "not ended [srun --jobid 7 --overlap caelum job 7]"},
	{"cancelled before the start", func(a *slurm.Allocation) {
		slicesOf(a, "1g.5gb", 1)
		a.State, a.Start, a.Nodes = "CANCELLED", time.Time{}, nil
	}, 9000, "not measured"},
	{"no GPU", func(*slurm.Allocation) {}, 9000, "not measured"},
}

// TestAdvice checks the topics of the advice and the lines to paste.
func TestAdvice(t *testing.T) {
	for _, c := range adviceCases {
		d := Data{Records: []slurm.Allocation{record(c.change)}, Site: predict.DefaultSite, Now: at(c.now)}
		var got []string
		for _, a := range New("7", d).Advice {
			text := strings.TrimSpace(a.Job + " " + string(a.Topic))
			if len(a.Paste) > 0 {
				text += fmt.Sprint(" ", a.Paste)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s; want %s", c.name, text, c.want)
		}
	}
}

// TestArray checks the state that stands for the tasks of an array. The peaks of tasks that did not complete do not
// show what the others need.
func TestArray(t *testing.T) {
	task := func(index uint64, state string, peak int) slurm.Allocation {
		return record(func(a *slurm.Allocation) {
			slicesOf(a, "3g.20gb", 1)
			a.ID, a.Ref, a.Index, a.State = uint32(10+index), fmt.Sprintf("10_%d", index), index, state
			a.Text = ran("3g.20gb", "a100", peak, "")
		})
	}
	for _, c := range []struct {
		tasks []slurm.Allocation
		want  Topic
		paste string
	}{
		{[]slurm.Allocation{task(1, "COMPLETED", 2000), task(2, "COMPLETED", 6000)}, TooLarge, "mig:1g.10gb:1"},
		{[]slurm.Allocation{task(1, "COMPLETED", 2000), task(2, "CANCELLED", 19000)}, TooLarge, "mig:1g.5gb:1"},
		{[]slurm.Allocation{task(1, "COMPLETED", 2000), task(2, "FAILED", 9000)}, TooLarge, "mig:1g.5gb:1"},
		{[]slurm.Allocation{task(1, "FAILED", 19500), task(2, "COMPLETED", 2000)}, OutOfMemory, "--gres=gpu:1"},
		{[]slurm.Allocation{task(1, "CANCELLED", 2000), task(2, "TIMEOUT", 2000)}, Unclear, ""},
	} {
		r := New("10", Data{Records: c.tasks, Site: predict.DefaultSite, Now: at(9000)})
		if r.Kind != Array || len(r.Jobs) != 2 || r.Advice[0].Topic != c.want ||
			!strings.Contains(strings.Join(r.Advice[0].Paste, " "), c.paste) {
			t.Errorf("%v: %s, %+v", c.tasks, r.Kind, r.Advice)
		}
	}
}

// TestReusedID checks that a report leaves out the runs of another user's earlier job with the same id.
func TestReusedID(t *testing.T) {
	other := record(func(a *slurm.Allocation) { a.UID, a.Index = 1002, 1 })
	own := record(func(a *slurm.Allocation) { a.Index, a.Start, a.End = 2, at(5000), at(5100) })
	r := New("7", Data{Records: []slurm.Allocation{other, own}, Site: predict.DefaultSite, Now: at(9000)})
	if len(r.Jobs) != 1 || len(r.Jobs[0].Earlier) != 0 || r.Jobs[0].Run != 100 {
		t.Errorf("%+v", r)
	}
}

// TestEach checks that the list has each job with GPUs once, newest first.
func TestEach(t *testing.T) {
	job := func(index uint64, id uint32, gpus int) slurm.Allocation {
		return record(func(a *slurm.Allocation) {
			a.Index, a.ID, a.Ref = index, id, fmt.Sprint(id)
			a.Requested = slurm.GRESList{{Name: "gpu", Count: gpus}}
		})
	}
	records := []slurm.Allocation{job(1, 7, 1), job(2, 8, 0), job(3, 9, 1), job(4, 7, 1)}
	var got []string
	for _, r := range Each(Data{Records: records, Site: predict.DefaultSite, Now: at(9000)}) {
		got = append(got, fmt.Sprintf("%s after %d runs", r.ID, len(r.Jobs[0].Earlier)))
	}
	if text := strings.Join(got, ", "); text != "7 after 1 runs, 9 after 0 runs" {
		t.Error(text)
	}
}
