package slurm

import (
	"context"
	"slices"
	"testing"
)

// As 22.05.8 prints two partitions, in part.
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
	if want := []Partition{{"gpu", false}, {"whole", true}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got := calls(); !slices.Equal(got, []string{`["-a" "show" "partition"]`}) {
		t.Errorf("calls %v", got)
	}
	if _, err := parsePartitions("   OverSubscribe=NO\n"); err == nil {
		t.Error("a partition without a name was read")
	}
}

func TestConfigHasItsTime(t *testing.T) {
	c, err := parseConfig(mustRead(t, "config.txt"))
	if err != nil || c.AsOf.Unix() != 1795233835 {
		t.Errorf("as of %v, %v", c.AsOf, err)
	}
}
