package main

import (
	"fmt"
	"strings"
	"testing"
)

// fractionNode returns a node with one GPU, of which jobs 1 and 2 hold one and two units.
func fractionNode() nodeState {
	return nodeState{
		GPUs: []gpu{{
			UUID: "GPU-a", Divided: true, Instances: []instance{{GI: fullGI, Profile: "full", UUID: "GPU-a"}},
		}},
		Leases: []leaseFile{
			{Job: "1", UID: 20001, UUIDs: []string{"GPU-a/0/1"}, Group: 71, Whole: true},
			{Job: "2", UID: 20002, UUIDs: []string{"GPU-a/2/2"}, Group: 72, Whole: true},
		},
		Limits:  []limit{{0, 71, 11389}, {0, 72, 22778}, {0, 70, 22778}},
		Caps:    []capFile{{GPU: 0, GI: fullGI, Name: "nvidia0", Mode: 0o660, Users: []int{20001, 20002}}},
		Clients: []client{{PID: 100, GPU: 0, GI: fullGI}, {PID: 200, GPU: 0, GI: fullGI}},
	}
}

// TestFractionWatch checks that sliceWatch detects jobs on a GPU with fractions whose memory is not limited, and finds
// nothing on a correct node.
func TestFractionWatch(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*nodeState)
		says   string
	}{
		{"sound", func(*nodeState) {}, ""},
		{"no limit", func(n *nodeState) { n.Limits = n.Limits[1:] }, "memory of job 1 on GPU 0 is not limited"},
		{"a strange limit", func(n *nodeState) { n.Limits[1].MiB = 30000 }, "memory of job 2 on GPU 0 is not limited"},
		{"too much", func(n *nodeState) {
			n.Limits = append(n.Limits, limit{0, 73, 22778})
			n.Leases = append(n.Leases, leaseFile{Job: "3", UID: 20001, UUIDs: []string{"GPU-a/0/2"}, Group: 73})
		}, "jobs 1, 2, 3 hold 5 units of GPU 0"},
		{"the whole GPU, too", func(n *nodeState) {
			n.Leases = append(n.Leases, leaseFile{Job: "3", UID: 20001, UUIDs: []string{"GPU-a"}, Group: 73})
		}, "jobs 1, 2, 3 hold 7 units of GPU 0"},
		{"a former user", func(n *nodeState) { n.Caps[0].Users = append(n.Caps[0].Users, 20003) }, "user 20003"},
		{"a former job", func(n *nodeState) { n.Clients = append(n.Clients, client{300, 0, fullGI}) },
			"process 300 of job 3 uses GPU 0"},
	} {
		var found []string
		w := newSliceWatch(func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		for at := range int64(12) {
			n := fractionNode()
			c.change(&n)
			var all []proc
			for _, job := range []string{"1", "2", "3"} {
				all = append(all, proc{PID: int(job[0]-'0') * 100, Job: job, Node: "n3", UUIDs: []string{"GPU-a"}})
			}
			w.check(snapshot{At: (at + 1) * second, Nodes: map[string]nodeState{"n3": n}, Procs: all})
		}
		if text := strings.Join(found, "\n"); (c.says == "") != (text == "") || !strings.Contains(text, c.says) {
			t.Errorf("%s: found %q, want %q", c.what, text, c.says)
		}
	}
}

func TestFitsFractions(t *testing.T) {
	o := options{nodes: 3, fractions: true}
	for _, c := range []struct {
		wants map[string]int
		want  bool
	}{
		{map[string]int{"1f.11gb": 1}, true},
		{map[string]int{"1f.11gb": 2}, false},
		{map[string]int{"2f.22gb": 1}, false},
		{map[string]int{"full": 1}, false},
		{map[string]int{"1g.5gb": 1}, false},
	} {
		if got, err := fractionNode().fits(o, "n3", c.wants); got != c.want || err != nil {
			t.Errorf("%v: %v, %v", c.wants, got, err)
		}
	}
}
