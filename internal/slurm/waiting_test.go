package slurm

import (
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
		{"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "", 9, "", true, false},
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
		w := Waiting{Job: Job{State: "PENDING", Reason: tc.reason, AdminComment: tc.comment, Priority: tc.priority, Problem: tc.problem}}
		if w.Eligible() != tc.eligible || w.HeldByMark() != tc.held {
			t.Errorf("%+v: eligible %v, held by mark %v", tc, w.Eligible(), w.HeldByMark())
		}
	}
}

// TestLearned: what earlier runs say counts up to the time limit, and nonsense is nothing.
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
