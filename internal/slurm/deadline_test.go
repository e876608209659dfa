package slurm

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestDeadline reads the `deadline` and `mintime` columns, with what squeue prints for missing values, and with
// values that it cannot print. A bad value must neither count as a deadline nor exclude the job from plans.
func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		deadline, least, limit string
		latest                 int64 // 0 if the job has no deadline
	}{
		{"N/A", "0:00", "10:00", 0},
		{"", "", "10:00", 0},
		{"(null)", "N/A", "10:00", 0},
		{"0", "0:00", "10:00", 0},
		{"-5", "0:00", "10:00", 0},
		{"2026-11-24T18:00:00", "0:00", "10:00", 0},
		{strconv.Itoa(noVal), "0:00", "10:00", 0},
		{"99999999999999999999", "0:00", "10:00", 0},
		{"1795240000", "0:00", "10:00", 1795239400},
		{"1795240000", "INVALID", "10:00", 1795239400},
		{"1795240000", "2:00", "10:00", 1795239880},
		{"1795240000", "1-00:00:00", "2-00:00:00", 1795240000 - 86400},
		{"1795240000", "0:00", "UNLIMITED", 1795240000},
		{"1795240000", "N/A", "Partition_Limit", 1795240000},
	} {
		record := recordOf(map[string]string{"deadline": c.deadline, "mintime": c.least, "timelimit": c.limit,
			"sct": "*:*:*", "mincpus": "1", "mintmpdisk": "0"})
		jobs, err := parseJobs(strings.NewReader(record.out), recordedSep)
		if err != nil || jobs[0].Problem != "" {
			t.Fatalf("%+v: %+v %v", c, jobs, err)
		}
		latest := time.Time{}
		if c.latest > 0 {
			latest = time.Unix(c.latest, 0)
		}
		if got := jobs[0].LatestStart(); !got.Equal(latest) || jobs[0].Deadline.IsZero() != (c.latest == 0) {
			t.Errorf("%+v: latest start %v, deadline %v", c, got, jobs[0].Deadline)
		}
	}
}
