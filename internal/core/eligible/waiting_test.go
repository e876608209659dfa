package eligible

import (
	"slices"
	"testing"
	"time"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

func TestEligible(t *testing.T) {
	const mark = "caelum:key=0123456789abcdef caelum:held"
	for _, tc := range []struct {
		reason, comment string
		priority        uint64
		problem         string
		eligible, held  bool
	}{
		{"None", "", 9, "", true, false},
		{"Priority", "", 9, "", true, false},
		{"ReqNodeNotAvail", "", 9, "", true, false},
		{"ReqNodeNotAvail, UnavailableNodes:mig-catalog[1-2]", "", 9, "", true, false},
		{"ReqNodeNotAvail, May be reserved for other job", "", 9, "", true, false},
		{"ReqNodeNotAvail, Reserved for maintenance", "", 9, "", false, false},
		{
			"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
			"", 9, "", true, false,
		},
		{ // since 24.11, while a node of the partition reboots (job_scheduler.c)
			"Nodes required for job are DOWN, DRAINED, REBOOTING or reserved for jobs in higher priority partitions",
			"", 9, "", true, false,
		},
		{"Resources", "", 9, "tres-per-node: unreadable", false, false},
		{"Resources", "", 0, "", false, false},
		{"QOSMaxGRESPerUser", "", 9, "", false, false},
		{"AssocGrpGRES", "", 9, "", false, false},
		{"Licenses", "", 9, "", false, false},
		{"Prolog", "", 9, "", false, false},
		{"a reason of a later release", "", 9, "", false, false},
		{"JobHeldUser", mark, 0, "", false, true},
		{"JobHeldAdmin", mark, 0, "", false, false},
		{"BadConstraints", mark, 0, "", false, true},
		{"job requeued in held state", mark, 0, "", false, true},
		{"JobHeldUser", "", 0, "", false, false},
		{"JobHeldUser", "not-caelum:held", 0, "", false, false},
		{"JobHeldUser", mark, 0, "tres-per-node: unreadable", false, false},
		{"Dependency", mark, 9, "", false, false},
	} {
		w := slurm.Waiting{
			Job: &slurm.Job{
				State:        "PENDING",
				Reason:       tc.reason,
				AdminComment: tc.comment,
				Priority:     tc.priority,
				Problem:      tc.problem,
			},
		}
		if WaitsForNodes(w) != tc.eligible || HeldByTag(w) != tc.held {
			t.Errorf("%+v: eligible %v, held by tag %v", tc, WaitsForNodes(w), HeldByTag(w))
		}
	}
}

// TestReleasable checks held jobs. The Reason of a held job shows only the hold; the jobs it waits for are in
// Dependency.
func TestReleasable(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		what       string
		do         func(*slurm.Waiting)
		releasable bool
	}{
		{"held by tag", func(*slurm.Waiting) {}, true},
		{"waits for another job", func(w *slurm.Waiting) { w.Dependency = "afterany:7(unfulfilled)" }, false},
		{"BadConstraints after a release", func(w *slurm.Waiting) {
			w.Reason, w.AdminComment = "BadConstraints", tags.Released
		}, true},
		{"the same, waits for another job", func(w *slurm.Waiting) {
			w.Reason, w.AdminComment, w.Dependency = "BadConstraints", tags.Released, "singleton(unfulfilled)"
		}, false},
		{"not due", func(w *slurm.Waiting) { w.Job.Eligible = now.Add(time.Second) }, false},
	} {
		w := slurm.Waiting{Job: &slurm.Job{State: "PENDING", Reason: "JobHeldUser", AdminComment: tags.Held}}
		c.do(&w)
		if got := Releasable(w, now); got != c.releasable {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	released := slurm.Waiting{
		Job: &slurm.Job{State: "PENDING", Reason: "None", Priority: 5, Dependency: "afterany:7(unfulfilled)"},
	}
	if WaitsForNodes(released) {
		t.Error("a job that waits for another one is eligible")
	}
}

// TestInOrder checks that held jobs, whose priority is unknown, come after the other jobs, but not forever.
func TestInOrder(t *testing.T) {
	type queue = []slurm.Waiting
	at := func(minutes int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(minutes) * time.Minute) }
	job := func(id uint32, priority uint64, submit int) slurm.Waiting {
		j := slurm.Job{ID: id, UID: 1000, State: "PENDING", Priority: priority, Submit: at(submit)}
		return slurm.Waiting{Job: &j}
	}
	expedited := func(w slurm.Waiting) slurm.Waiting { w.Expedited = true; return w }
	nice := func(w slurm.Waiting, nice int64) slurm.Waiting { w.Nice = nice; return w }
	started := func(uid uint32, minute int, comment string) slurm.Job {
		return slurm.Job{ID: 99, UID: uid, State: "COMPLETED", Start: at(minute), AdminComment: comment}
	}
	released, unheld := started(1000, 40, tags.Released), started(1000, 40, "")
	other := started(1001, 40, tags.Released)
	for _, c := range []struct {
		what    string
		waiting queue
		all     []slurm.Job
		want    []uint32
	}{
		{"behind a younger one", queue{job(5, 1, 30), job(1, 0, 0)}, nil, []uint32{5, 1}},
		{"before one that came more than an hour later", queue{job(5, 1, 61), job(1, 0, 0)}, nil, []uint32{1, 5}},
		{
			"not before one that came earlier",
			queue{job(9, 9, 90), job(5, 5, 30), job(8, 4, 80), job(1, 0, 0)},
			nil,
			[]uint32{9, 5, 1, 8},
		},
		{"an expedited job", queue{expedited(job(5, 1, 61)), job(1, 0, 0)}, nil, []uint32{5, 1}},
		{"nicer than the other one", queue{job(5, 1, 61), nice(job(1, 0, 0), 1)}, nil, []uint32{5, 1}},
		{"both are nice", queue{nice(job(5, 1, 61), 1), nice(job(1, 0, 0), 1)}, nil, []uint32{1, 5}},
		{"by age among themselves", queue{job(5, 1, 90), job(2, 0, 1), job(1, 0, 0)}, nil, []uint32{1, 2, 5}},
		{
			"a held job of its user has started",
			queue{job(5, 1, 90), job(1, 0, 0)},
			[]slurm.Job{released},
			[]uint32{5, 1},
		},
		{"longer ago", queue{job(5, 1, 120), job(1, 0, 0)}, []slurm.Job{released}, []uint32{1, 5}},
		{"a held job of another user", queue{job(5, 1, 90), job(1, 0, 0)}, []slurm.Job{other}, []uint32{1, 5}},
		{"a job that was not held", queue{job(5, 1, 90), job(1, 0, 0)}, []slurm.Job{unheld}, []uint32{1, 5}},
	} {
		var got []uint32
		for _, w := range InOrder(slurm.Queue{Waiting: c.waiting, All: c.all}) {
			got = append(got, w.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
