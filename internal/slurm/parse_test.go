package slurm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// recordedSep is the separator in the recordings.
const recordedSep = "|~|"

// TestStory parses the recorded output of Slurm 22.05.8 in testdata/22.05.8, in which host names and paths were
// replaced, and compares the results with the files in testdata/story, which the -rewrite flag rewrites.
func TestStory(t *testing.T) {
	datadriven.Walk(t, "testdata/story", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if parse, ok := lineParsers[d.Cmd]; ok {
				var b strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					value, err := parse(line)
					show(&b, value, err)
				}
				return b.String()
			}
			parse, ok := recordingParsers[d.Cmd]
			if !ok {
				t.Fatalf("unknown command %s", d.Cmd)
			}
			text, err := parse(recorded(t, d), d)
			if err != nil {
				return err.Error() + "\n"
			}
			return text
		})
	})
}

// lineParsers maps commands to the functions that parse one line of their input.
var lineParsers = map[string]func(string) (string, error){
	"gres":    formatted(ParseGRES),
	"request": formatted(requestGRES),
	"tres":    formatted(ParseTRES),
	"hosts": func(line string) (string, error) {
		list, err := ExpandHosts(line)
		return strings.Join(list, " "), err
	},
	"limit": func(line string) (string, error) {
		limit, err := ParseLimit(line)
		return limit.String(), err
	},
}

func formatted(parse func(string) (GRESList, error)) func(string) (string, error) {
	return func(line string) (string, error) {
		list, err := parse(line)
		return list.String(), err
	}
}

// recordingParsers maps commands to the functions that parse a program's recorded output.
var recordingParsers = map[string]func(out string, d *datadriven.TestData) (string, error){
	"queue": func(out string, d *datadriven.TestData) (text string, err error) {
		jobs, err := parseJobs(strings.NewReader(out), recordedSep)
		for _, j := range jobs {
			if !d.HasArg("job") || slices.Contains(values(d, "job"), fmt.Sprint(j.ID)) {
				text += describe(j)
			}
		}
		return text, err
	},
	"exclusions": func(out string, _ *datadriven.TestData) (text string, err error) {
		exclusions, err := parseExclusions(strings.NewReader(out), recordedSep, nil)
		for _, id := range slices.Sorted(maps.Keys(exclusions)) {
			e := exclusions[id]
			text += fmt.Sprintf("%d %s excluded=%v\n", e.id, e.state, e.excluded)
		}
		return text, err
	},
	"allocation": func(out string, d *datadriven.TestData) (text string, err error) {
		alloc, err := parseAllocation(out, values(d, "nodes"))
		for _, n := range slices.Sorted(maps.Keys(alloc)) {
			text += fmt.Sprintf("%s: %s\n", n, alloc[n].String())
		}
		return text, err
	},
	"node": func(out string, d *datadriven.TestData) (string, error) {
		n, err := parseNode(out, strings.Join(values(d, "name"), ""))
		return fmt.Sprintf(
			"%s %s reason=%q partitions=%v features=%v booted=%v slurmd=%v of %q\ngres %s\nused %s\n",
			n.Name, strings.Join(n.States, "+"), n.Reason, n.Partitions, n.Features,
			unix(n.BootTime), unix(n.SlurmdStartTime), n.Version, n.Gres.String(), n.GresUsed.String(),
		), err
	},
	"config": func(out string, _ *datadriven.TestData) (string, error) {
		c, err := parseConfig(out)
		return fmt.Sprintf(
			"%s TaskPlugin=%q ConstrainDevices=%q relative=%v alloc=%v runinjob=%v\n",
			c.Version(), c.Values["TaskPlugin"], c.Values["ConstrainDevices"], c.RelativeIndex(),
			c.Has("PrologFlags", "Alloc"), c.Has("PrologFlags", "RunInJob"),
		), err
	},
}

func recorded(t *testing.T, d *datadriven.TestData) string {
	if !d.HasArg("file") {
		return strings.ReplaceAll(d.Input, "⏎", "\n")
	}
	var file string
	d.ScanArgs(t, "file", &file)
	out, err := os.ReadFile(filepath.Join("testdata", "22.05.8", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func show(b *strings.Builder, value string, err error) {
	switch {
	case err != nil:
		fmt.Fprintf(b, "error: %v\n", err)
	case value != "":
		fmt.Fprintf(b, "%s\n", value)
	default:
		b.WriteString("none\n")
	}
}

// values returns the values of a test command's argument.
func values(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// describe formats the non-empty fields of a job.
func describe(j Job) string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"%d %q %s reason=%q uid=%d(%s) partition=%s priority=%d restarts=%d limit=%v",
		j.ID, j.Name, j.State, j.Reason, j.UID, j.User, j.Partition, j.Priority, j.Restarts, j.TimeLimit,
	)
	fmt.Fprintf(
		&b,
		"\n  submit=%d eligible=%d start=%d end=%d",
		unix(j.Submit), unix(j.Eligible), unix(j.Start), unix(j.End),
	)
	fmt.Fprintf(
		&b,
		"\n  nodes=%v of %d required=%v tasks=%d gpus-per-node=%d slices-per-node=%v",
		j.Nodes, j.NumNodes, j.ReqNodes, j.Tasks, j.GPUsPerNode(), j.SlicesPerNode(),
	)
	for _, o := range []struct {
		name, value string
	}{
		{"array", fmt.Sprint(j.ArrayJob, "_", j.ArrayTask)}, {"het", fmt.Sprint(j.HetJob)},
		{"account", j.Account}, {"qos", j.QOS}, {"features", j.Features.String()}, {"reservation", j.Reservation},
		{"per-node", j.PerNode.String()}, {"per-job", j.PerJob.String()}, {"per-task", j.PerTask.String()},
		{"per-socket", j.PerSocket.String()}, {"admin-comment", j.AdminComment}, {"comment", j.Comment},
		{"problem", j.Problem},
	} {
		if o.value != "" && o.value != "0" && o.value != "0_" {
			fmt.Fprintf(&b, "\n  %s=%q", o.name, o.value)
		}
	}
	fmt.Fprintf(
		&b,
		"\n  batch=%v requeue=%v exclusive=%v present=%v holds=%v ref=%s\n",
		j.Batch, j.Requeue, j.Exclusive, j.Present(), j.Holds(), ref(j),
	)
	return b.String()
}
