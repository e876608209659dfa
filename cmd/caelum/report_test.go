package main

import (
	"context"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestAddTags tests that report reads the tags of runs that have not ended from slurmctld, and keeps slurmdbd's tags of
// all other runs and of jobs that slurmctld does not show.
func TestAddTags(t *testing.T) {
	record := func(id uint32, end int64) slurm.Allocation {
		a := slurm.Allocation{}
		if a.ID, a.Comment = id, "old"; end > 0 {
			a.End = time.Unix(end, 0)
		}
		return a
	}
	grown := []slurm.Job{{ID: 7, AdminComment: "new"}, {ID: 9}}
	for _, c := range []struct {
		requeued bool
		err      error
		jobs     []slurm.Job
		want     string
	}{
		{false, nil, grown, "old new old old"},
		{true, nil, grown, "old new old old"},
		{false, nil, nil, "old old old old"},
		{false, slurm.ErrUnreachable, grown, "old old old old"},
	} {
		records := []slurm.Allocation{record(7, 100), record(7, 0), record(8, 0), record(9, 0)}
		if c.requeued {
			records[1].End, records[1].State = time.Unix(200, 0), "REQUEUED"
		}
		addTags(t.Context(), func(context.Context, uint32) ([]slurm.Job, error) { return c.jobs, c.err }, 7, records)
		got := ""
		for _, r := range records {
			got += " " + r.Comment
		}
		if got != " "+c.want {
			t.Errorf("%v, %v: got%s, want %s", c.jobs, c.err, got, c.want)
		}
	}
	addTags(t.Context(), func(context.Context, uint32) ([]slurm.Job, error) {
		t.Error("report asks slurmctld about a job that has ended")
		return nil, nil
	}, 7, []slurm.Allocation{record(7, 0), record(7, 100)})
}
