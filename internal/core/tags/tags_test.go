package tags

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestRemove checks the removal of tags from lines of admin_comment. The -rewrite flag rewrites the expected results.
func TestRemove(t *testing.T) {
	datadriven.RunTest(t, "testdata/remove", func(_ *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for line := range strings.SplitSeq(d.Input, "\n") {
			fmt.Fprintf(&b, "%v %q -> %q\n", Has(line, Held), Value(line, Key), Remove(line, Held))
		}
		return b.String()
	})
}
