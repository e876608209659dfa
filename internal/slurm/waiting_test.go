package slurm

import (
	"slices"
	"testing"
	"time"
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
		{ // while a node of the partition reboots, from 24.11 on (job_scheduler.c)
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
		w := Waiting{
			Job: Job{
				State:        "PENDING",
				Reason:       tc.reason,
				AdminComment: tc.comment,
				Priority:     tc.priority,
				Problem:      tc.problem,
			},
		}
		if w.Eligible() != tc.eligible || w.HeldByTag() != tc.held {
			t.Errorf("%+v: eligible %v, held by tag %v", tc, w.Eligible(), w.HeldByTag())
		}
	}
}

// TestLearned checks that the learned run time is at most the time limit, and that an invalid value counts as unknown.
func TestLearned(t *testing.T) {
	for _, c := range []struct {
		comment           string
		limit             time.Duration
		learned, expected time.Duration
	}{
		{"", time.Hour, 0, time.Hour},
		{"", 0, 0, 0},
		{"caelum:key=x caelum:runs=600 JS1:a", time.Hour, 10 * time.Minute, 10 * time.Minute},
		{"caelum:runs=600", 0, 10 * time.Minute, 10 * time.Minute},
		{"caelum:runs=7200", time.Hour, time.Hour, time.Hour},
		{"caelum:runs=-1", time.Hour, 0, time.Hour},
		{"caelum:runs=99999999999999999999", time.Hour, 0, time.Hour},
		{"caelum:runs=", time.Hour, 0, time.Hour},
	} {
		j := Job{AdminComment: c.comment, TimeLimit: c.limit}
		if j.Learned() != c.learned || j.Expected() != c.expected {
			t.Errorf("%q, limit %v: learned %v, expected %v", c.comment, c.limit, j.Learned(), j.Expected())
		}
	}
}

// TestReleasable uses held jobs, whose Reason shows only the hold. The jobs for which they wait are listed in
// Dependency.
func TestReleasable(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		what       string
		do         func(*Waiting)
		releasable bool
	}{
		{"held by tag", func(*Waiting) {}, true},
		{"waits for another job", func(w *Waiting) { w.Dependency = "afterany:7(unfulfilled)" }, false},
		{"BadConstraints after a release", func(w *Waiting) {
			w.Reason, w.AdminComment = "BadConstraints", TagReleased
		}, true},
		{"the same, waits for another job", func(w *Waiting) {
			w.Reason, w.AdminComment, w.Dependency = "BadConstraints", TagReleased, "singleton(unfulfilled)"
		}, false},
		{"not due", func(w *Waiting) { w.Job.Eligible = now.Add(time.Second) }, false},
	} {
		w := Waiting{Job: Job{State: "PENDING", Reason: "JobHeldUser", AdminComment: TagHeld}}
		c.do(&w)
		if got := w.Releasable(now); got != c.releasable {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	released := Waiting{Job: Job{State: "PENDING", Reason: "None", Priority: 5, Dependency: "afterany:7(unfulfilled)"}}
	if released.Eligible() {
		t.Error("a job that waits for another one is eligible")
	}
}

// TestInOrder checks that held jobs, whose priority is unknown, come after the other jobs, but not forever.
func TestInOrder(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(minutes) * time.Minute) }
	job := func(id uint32, priority uint64, submit int) Waiting {
		return Waiting{Job: Job{ID: id, UID: 1000, State: "PENDING", Priority: priority, Submit: at(submit)}}
	}
	nice := func(w Waiting, nice int64) Waiting { w.Nice = nice; return w }
	started := func(uid uint32, minute int, comment string) Job {
		return Job{ID: 99, UID: uid, State: "COMPLETED", Start: at(minute), AdminComment: comment}
	}
	released, unheld := started(1000, 40, TagReleased), started(1000, 40, "")
	other := started(1001, 40, TagReleased)
	for _, c := range []struct {
		what    string
		waiting []Waiting
		all     []Job
		want    []uint32
	}{
		{"behind a younger one", []Waiting{job(5, 1, 30), job(1, 0, 0)}, nil, []uint32{5, 1}},
		{"before one that came more than an hour later", []Waiting{job(5, 1, 61), job(1, 0, 0)}, nil, []uint32{1, 5}},
		{
			"not before one that came earlier",
			[]Waiting{job(9, 9, 90), job(5, 5, 30), job(8, 4, 80), job(1, 0, 0)},
			nil,
			[]uint32{9, 5, 1, 8},
		},
		{"nicer than the other one", []Waiting{job(5, 1, 61), nice(job(1, 0, 0), 1)}, nil, []uint32{5, 1}},
		{"both are nice", []Waiting{nice(job(5, 1, 61), 1), nice(job(1, 0, 0), 1)}, nil, []uint32{1, 5}},
		{"by age among themselves", []Waiting{job(5, 1, 90), job(2, 0, 1), job(1, 0, 0)}, nil, []uint32{1, 2, 5}},
		{"a held job of its user has started", []Waiting{job(5, 1, 90), job(1, 0, 0)}, []Job{released}, []uint32{5, 1}},
		{"longer ago", []Waiting{job(5, 1, 120), job(1, 0, 0)}, []Job{released}, []uint32{1, 5}},
		{"a held job of another user", []Waiting{job(5, 1, 90), job(1, 0, 0)}, []Job{other}, []uint32{1, 5}},
		{"a job that was not held", []Waiting{job(5, 1, 90), job(1, 0, 0)}, []Job{unheld}, []uint32{1, 5}},
	} {
		var got []uint32
		for _, w := range (Queue{Waiting: c.waiting, All: c.all}).InOrder() {
			got = append(got, w.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestMemoryOfAJob(t *testing.T) {
	for text, want := range map[string]int{
		"cpu=2,mem=400000M,node=2,billing=2": 400000, "cpu=3,mem=250G,node=1": 256000,
		"mem=1.50T": 1572864, "mem=512K": 0, "mem=7": 7,
		"cpu=1,node=1": 0, "N/A": 0, "": 0, "mem=0": 0, "mem=": -1, "mem=xG": -1, "mem=-1G": -1, "mem=NaN": -1,
		"mem=1e300P": -1,
	} {
		got, err := tresMemory(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
}

// TestSortWaiting checks that, among jobs of equal priority, the job that was submitted or requeued first comes first.
func TestSortWaiting(t *testing.T) {
	job := func(id, array uint32, priority uint64, submit int64) Waiting {
		return Waiting{Job: Job{ID: id, ArrayJob: array, Priority: priority, Submit: time.Unix(submit, 0)}}
	}
	list := []Waiting{job(5, 0, 1, 30), job(6, 0, 1, 20), job(9, 4, 1, 20), job(3, 0, 1, 40), job(8, 0, 2, 50)}
	SortWaiting(list)
	var ids []uint32
	for _, w := range list {
		ids = append(ids, w.ID)
	}
	if want := []uint32{8, 9, 6, 5, 3}; !slices.Equal(ids, want) {
		t.Errorf("order %v, want %v", ids, want)
	}
}
