package slurm

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// twoPartitions is part of what `scontrol show partition` (22.05.8) prints for two partitions.
const twoPartitions = `PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   Default=YES QoS=N/A
   Nodes=n[1-2],mig-catalog[1-2]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF

PartitionName=whole
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE
   OverTimeLimit=NONE PreemptMode=OFF
`

func TestPartitions(t *testing.T) {
	c, calls := stage(t, scene{out: twoPartitions})
	got, err := c.Partitions(context.Background())
	if want := []Partition{
		{Name: "gpu", Tier: 1, PreemptMode: "OFF"},
		{Name: "whole", Exclusive: true, Tier: 1, PreemptMode: "OFF"},
	}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got := calls(); !slices.Equal(got, []string{`["-a" "show" "partition"]`}) {
		t.Errorf("calls %v", got)
	}
	if _, err := parsePartitions("   OverSubscribe=NO\n"); err == nil {
		t.Error("no error for a partition without a name")
	}
}

func TestConfigHasItsTime(t *testing.T) {
	c, err := parseConfig(mustRead(t, "config.txt"))
	if err != nil || c.AsOf.Unix() != 1795233835 {
		t.Errorf("as of %v, %v", c.AsOf, err)
	}
}

// TestConfigOfRecords reads the settings that determine which records a restart of slurmctld affects.
func TestConfigOfRecords(t *testing.T) {
	c, err := parseConfig(mustRead(t, "config.txt"))
	if err != nil || c.Started().Unix() != 1795233565 || c.JobMemory() != 300*time.Second {
		t.Errorf("%v %v %v", c.Started(), c.JobMemory(), err)
	}
	if c = (Config{}); !c.Started().IsZero() || c.JobMemory() != 0 {
		t.Errorf("without values: %v %v", c.Started(), c.JobMemory())
	}
}

// TestReservations checks the parsing of the output of scontrol 22.05.8 for three reservations. The first includes its
// whole node, the second only part of its nodes, and the third is not active yet.
func TestReservations(t *testing.T) {
	nodes := []Node{{Name: "n1", CPUs: 64}, {Name: "n2", CPUs: 64}, {Name: "n3", CPUs: 64}}
	err := reserve(
		nodes,
		`ReservationName=course StartTime=2026-11-22T06:25:10 EndTime=2026-11-22T06:35:10 Duration=00:10:00
   Nodes=n2 NodeCnt=1 CoreCnt=64 Features=(null) PartitionName=(null) Flags=SPEC_NODES
   TRES=cpu=64
   Users=user1 Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

ReservationName=some StartTime=2026-11-22T06:25:10 EndTime=2026-11-22T06:35:10 Duration=00:10:00
   Nodes=n[2-3] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=gpu Flags=
   TRES=cpu=8,gres/gpu=2
   Users=user1 Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

ReservationName=later StartTime=2026-12-22T06:25:10 EndTime=2026-12-22T06:35:10 Duration=00:10:00
   Nodes=n1 NodeCnt=1 CoreCnt=64 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=64
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)
`,
	)
	got := fmt.Sprint(nodes[0].Reservations, nodes[1].Reservations, nodes[2].Reservations)
	if err != nil || got != "[] [{course true} {some false}] [{some false}]" {
		t.Errorf("%s, %v", got, err)
	}
	if err := reserve(nodes, "No reservations in the system\n"); err != nil {
		t.Error(err)
	}
	if err := reserve(nodes, "ReservationName=x State=ACTIVE Nodes=n[ TRES=cpu=1\n"); err == nil {
		t.Error("no error for hosts that cannot be read")
	}
}
