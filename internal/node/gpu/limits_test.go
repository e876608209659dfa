package gpu_test

import (
	"strings"
	"testing"

	"caelum/internal/node/gpu/gputest"
)

// TestLimitsOfOlderDriver uses a driver without the functions.
func TestLimitsOfOlderDriver(t *testing.T) {
	node := gputest.New(t, "L40S-48GB", 1)
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	if why := node.LimitsProblem(); !strings.Contains(why, "595.45.04 is older than R615") {
		t.Errorf("the problem is %q", why)
	}
	const cgroup = "/sys/fs/cgroup"
	if err := node.SetLimit(0, cgroup, 1<<30); err == nil || !strings.Contains(err.Error(), cgroup) {
		t.Errorf("SetLimit returned the error %v", err)
	}
	if _, _, err := node.Limit(0, cgroup); err == nil {
		t.Error("Limit returned no error")
	}
}
