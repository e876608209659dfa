package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// benchTop measures how long a refresh of `caelum top` takes and how much CPU time it costs slurmctld. The cluster has
// the given number of nodes with eight GPUs each, but only the first two nodes are running. The records of the other
// nodes contain the state that n1's agent published while 24 jobs were running.
func benchTop(ctx context.Context, nodes int) (err error) {
	c, down, err := upWithRecords(ctx, "poll_interval: 1s\n", nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	do := doer(ctx, c, &err)
	shown := do("caelum", "status", "--all")
	if err != nil || strings.Count(shown, "3===") < nodes-2 {
		return errors.Join(err, fmt.Errorf("caelum status does not show the state of all nodes:\n%.2000s", shown))
	}
	before := cpuTime(do)
	var took []time.Duration
	for range 50 {
		began := time.Now()
		do("caelum", "status", "--all")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	each := (cpuTime(do) - before) / 50
	fmt.Printf("\ncaelum status --all with %d nodes of 8 GPUs, 50 times:\n", nodes)
	fmt.Printf("  median %.2f s, longest %.2f s, with devcluster exec\n", took[25].Seconds(), took[49].Seconds())
	fmt.Printf("  %v of slurmctld's CPU time each; 100 users of caelum top with the default interval of 15 s: "+
		"%.1f%% of a CPU\n", each, 100*100*each.Seconds()/15)
	return err
}

// cpuTime returns the CPU time that slurmctld has used.
func cpuTime(do func(...string) string) time.Duration {
	stat := strings.Fields(do("sh", "-c", "cat /proc/$(pidof slurmctld)/stat"))
	if len(stat) < 15 {
		return 0
	}
	user, _ := strconv.Atoi(stat[13])
	system, _ := strconv.Atoi(stat[14])
	return time.Duration(user+system) * time.Second / 100 // USER_HZ is 100 on Linux
}
