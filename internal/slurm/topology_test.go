package slurm

import (
	"fmt"
	"testing"
)

// TestTopology checks how a node's hardware and the hardware that a job requests are parsed.
func TestTopology(t *testing.T) {
	for text, want := range map[string]string{
		"*:*:*": "0 0 0", "2:*:1": "2 0 1", "2K:1:1": "2048 1 " +
			"1", "1:2": "error", "a:1:1": "error", "-1:1:1": "error", "": "error",
	} {
		var j Job
		got := "error"
		if err := j.topology(text); err == nil {
			got = fmt.Sprint(j.Sockets, j.CoresPerSocket, j.ThreadsPerCore)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	node, err := parseNode(mustRead(t, "node-busy.txt"), "n1")
	if err != nil || node.Sockets != 8 || node.CoresPerSocket != 1 || node.ThreadsPerCore != 1 || node.Weight != 1 {
		t.Errorf("%+v %v", node, err)
	}
}
