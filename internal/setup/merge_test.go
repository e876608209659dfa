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
//	merge [nodes=n[1-2]] [partition=gpu]    prints the problems, the notes and the patch ("~" stands for CR)
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
			case "merge":
				nodes, partition := "n[1-2]", "gpu"
				d.MaybeScanArgs(t, "nodes", &nodes)
				d.MaybeScanArgs(t, "partition", &partition)
				return example(t, s, nodes, partition)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func example(t *testing.T, s site, nodes, partition string) string {
	r, err := s.merge(nodes, partition)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem: %v\n", p)
	}
	if len(r.Problems) > 0 {
		return b.String()
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	s.check(t, r, nodes, partition)
	for line := range strings.Lines(string(Patch(r.Files))) {
		b.WriteString(strings.Replace(line, "\r\n", "~\n", 1))
	}
	return b.String()
}
