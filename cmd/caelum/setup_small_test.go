package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestFit checks which recorded runs would fit into the smallest slice. Runs on several GPUs and runs that were not
// measured do not count.
func TestFit(t *testing.T) {
	var lines strings.Builder
	for k, run := range []struct{ peak, samples, nodes int }{
		{3000, 9, 1}, {4600, 9, 1}, {4700, 9, 1}, {20000, 9, 1}, {0, 0, 1}, {3000, 9, 2},
	} {
		fmt.Fprintf(&lines, `{"job":%d,"node":"n1","key":"00000000000000a1","work":"00000000000000a1","uid":1001,`+
			`"user":"user1","account":"phys","name":"train","board":"a100","profile":"7g.40gb","slices":1,`+
			`"start":1700000000,"seconds":100,"samples":%d,"peak_mib":%d,"median_mib":%[3]d,"p95_mib":%[3]d,"util":-1,`+
			`"state":"COMPLETED","exit":0,"submit":1699999990,"nodes":%d,"gpus":1,"gpu_util":-1}`+"\n",
			k+1, run.samples, run.peak, run.nodes)
	}
	if runs, fitting, err := fit(strings.NewReader(lines.String()), 4864); runs != 4 || fitting != 2 || err != nil {
		t.Errorf("%d runs, %d of them fit: %v", runs, fitting, err)
	}
}
