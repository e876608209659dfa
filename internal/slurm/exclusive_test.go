package slurm

import (
	"context"
	"slices"
	"testing"
)

// TestExclusive checks that the `exclusive` column overrides the `oversubscribe` column. Since 26.05, the latter is
// NO even for jobs that share nodes.
func TestExclusive(t *testing.T) {
	for _, tc := range []struct {
		release, oversubscribe, exclusive string
		want                              bool
	}{
		{"to 25.11", "OK", "", false},
		{"to 25.11", "YES", "", false},
		{"to 25.11", "NO", "", true}, // --exclusive, or a partition with OverSubscribe=EXCLUSIVE
		{"to 25.11", "USER", "", false},
		{"from 26.05", "NO", "NO", false}, // neither the job nor the partition requests whole nodes
		{"from 26.05", "YES", "NO", false},
		{"from 26.05", "NO", "USER", false},
		{"from 26.05", "NO", "NODE", true},
		{"from 26.05", "NO", "TOPO", true},
	} {
		c, _ := stage(t, recordOf(map[string]string{"oversubscribe": tc.oversubscribe, "exclusive": tc.exclusive}))
		jobs, err := c.Jobs(context.Background())
		if err != nil || len(jobs) != 1 || jobs[0].Exclusive != tc.want {
			t.Errorf("%+v: %+v, %v", tc, jobs, err)
		}
	}
}

// twoPartitions2605 is part of what `scontrol show partition` (26.05, api/partition_info.c) prints for the partitions
// in twoPartitions and for two more.
const twoPartitions2605 = `PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   Default=YES QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO Exclusive=NO GraceTime=0 Hidden=NO
   Nodes=n[1-2],mig-catalog[1-2]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF

PartitionName=whole
   DefaultTime=NONE DisableRootJobs=NO Exclusive=NODE GraceTime=0 Hidden=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF

PartitionName=block
   DefaultTime=NONE DisableRootJobs=NO Exclusive=TOPO GraceTime=0 Hidden=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO

PartitionName=user
   DefaultTime=NONE DisableRootJobs=NO Exclusive=USER GraceTime=0 Hidden=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=FORCE:4
`

func TestPartitionsOf2605(t *testing.T) {
	got, err := parsePartitions(twoPartitions2605)
	want := []bool{false, true, true, false}
	if err != nil || !slices.EqualFunc(got, want, func(p Partition, only bool) bool { return p.Exclusive == only }) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}
