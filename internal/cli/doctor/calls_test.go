package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/node/gpu/gputest"
)

// TestCallsOfNodeHealthCheck bounds the number of NVML calls of a node health check on 8 GPUs with 7 instances each.
func TestCallsOfNodeHealthCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root probes the driver")
	}
	node := gputest.New(t, "B200-180GB", 8)
	gpus, err := node.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	f := &Facts{Missing: map[Source]Finding{}}
	for g := range gpus {
		for start := range 7 {
			if _, err := node.Create(g, gpus[g].Model.Profiles[0].Name, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	host := Host{Config: config.Config{
		DeviceDir: node.Dev, NVMLLibrary: filepath.Join(node.Build(), "libnvidia-ml.so.1"),
	}}
	node.Emulator(t, "calls", "--reset")
	f.probeWithin(t.Context(), host)
	if len(f.Missing) > 0 {
		t.Fatalf("%+v", f.Missing)
	}
	n := 0
	for line := range strings.Lines(node.Emulator(t, "calls")) {
		var kind string
		var k int
		if _, err := fmt.Sscan(line, &kind, &k); err == nil {
			n += k
		}
	}
	t.Logf("%d calls", n)
	if n > 5*len(gpus) {
		t.Errorf("%d calls for %d GPUs", n, len(gpus))
	}
}
