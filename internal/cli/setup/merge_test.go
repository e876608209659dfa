package setup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestMerge runs the examples in testdata/examples. Each file describes sites:
//
//	file PATH [crlf] [no-newline]    a file of the site; with crlf, its lines end in CRLF
//	merge [nodes=n[1-2]] [partition=gpu] [model=a100]    prints the problems, the notes and the patch ("~" is CR)
//	apply [nodes=n[1-2]] [partition=gpu] [model=a100]    the same, and applies the patch to the site
//
// After each merge, the test also checks the round trip, and that another merge changes nothing.
func TestMerge(t *testing.T) {
	datadriven.Walk(t, "testdata/examples", func(t *testing.T, path string) {
		s := site{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "site":
				s = site{}
				return ""
			case "file":
				text := d.Input + "\n"
				for _, arg := range d.CmdArgs[1:] {
					switch arg.Key {
					case "crlf":
						text = strings.ReplaceAll(text, "\n", "\r\n")
					case "no-newline":
						text = strings.TrimRight(text, "\r\n")
					default:
						d.Fatalf(t, "unknown argument %s", arg.Key)
					}
				}
				s[d.CmdArgs[0].Key] = text
				return ""
			case "merge", "apply":
				nodes, partition, model := "n[1-2]", "gpu", "a100"
				d.MaybeScanArgs(t, "nodes", &nodes)
				d.MaybeScanArgs(t, "partition", &partition)
				d.MaybeScanArgs(t, "model", &model)
				text, changed := example(t, s, nodes, partition, model)
				if d.Cmd == "apply" {
					s = changed
				}
				return text
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

// example returns the result of a merge, and the site after the patch, or without changes if there are problems.
func example(t *testing.T, s site, nodes, partition, model string) (string, site) {
	r, err := s.mergeModel(nodes, partition, model)
	if err != nil {
		return "error: " + err.Error() + "\n", s
	}
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem: %v\n", p)
	}
	if len(r.Problems) > 0 {
		return b.String(), s
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	changed := s.checkModel(t, r, nodes, partition, model)
	for line := range strings.Lines(string(Patch(r.Files))) {
		b.WriteString(strings.Replace(line, "\r\n", "~\n", 1))
	}
	return b.String(), changed
}
