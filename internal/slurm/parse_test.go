package slurm

import (
	"fmt"
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

// TestStory feeds output of Slurm 22.05.8 (testdata/22.05.8, with host names and paths replaced) to the parsers and
// compares the results with the files in testdata/story. The flag -rewrite rewrites these files.
func TestStory(t *testing.T) {
	datadriven.Walk(t, "testdata/story", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			switch d.Cmd {
			case "gres":
				for line := range strings.SplitSeq(d.Input, "\n") {
					list, err := ParseGRES(line)
					show(&b, list.String(), err)
				}
			case "request":
				for line := range strings.SplitSeq(d.Input, "\n") {
					list, err := requestGRES(line)
					show(&b, list.String(), err)
				}
			case "tres":
				for line := range strings.SplitSeq(d.Input, "\n") {
					list, err := ParseTRES(line)
					show(&b, list.String(), err)
				}
			case "hosts":
				for line := range strings.SplitSeq(d.Input, "\n") {
					list, err := ExpandHosts(line)
					show(&b, strings.Join(list, " "), err)
				}
			case "limit":
				for line := range strings.SplitSeq(d.Input, "\n") {
					limit, err := parseLimit(line)
					show(&b, limit.String(), err)
				}
			case "remove-held":
				for line := range strings.SplitSeq(d.Input, "\n") {
					fmt.Fprintf(
						&b,
						"%v %q -> %q\n",
						HasTag(line, TagHeld),
						TagValue(line, TagKey),
						RemoveTag(line, TagHeld),
					)
				}
			case "queue":
				jobs, err := parseJobs(recorded(t, d), recordedSep)
				if err != nil {
					return err.Error() + "\n"
				}
				for _, j := range jobs {
					if !d.HasArg("job") || contains(d, "job", fmt.Sprint(j.ID)) {
						b.WriteString(describe(j))
					}
				}
			case "waiting":
				jobs, err := parseJobs(recorded(t, d), recordedSep)
				if err != nil {
					return err.Error() + "\n"
				}
				for _, w := range toWaiting(jobs) {
					fmt.Fprintf(
						&b, "%d %q x%d eligible=%v held-by-tag=%v %s\n", w.ID, w.Name, w.Elements, w.Eligible(),
						w.HeldByTag(), w.Reason,
					)
				}
			case "looks":
				exclusions, err := parseExclusions(recorded(t, d), recordedSep)
				show(&b, "", err)
				for _, e := range exclusions {
					fmt.Fprintf(&b, "%d %s excluded=%v\n", e.id, e.state, e.excluded)
				}
			case "allocation":
				var nodes []string
				for _, a := range d.CmdArgs {
					if a.Key == "nodes" {
						nodes = a.Vals
					}
				}
				alloc, err := parseAllocation(recorded(t, d), nodes)
				if err != nil {
					return err.Error() + "\n"
				}
				for _, n := range sortedKeys(alloc) {
					fmt.Fprintf(&b, "%s: %s\n", n, alloc[n].String())
				}
			case "node":
				var name string
				d.ScanArgs(t, "name", &name)
				n, err := parseNode(recorded(t, d), name)
				if err != nil {
					return err.Error() + "\n"
				}
				fmt.Fprintf(
					&b,
					"%s %s reason=%q partitions=%v features=%v booted=%v slurmd=%v of %q\ngres %s\nused %s\n",
					n.Name,
					strings.Join(n.States, "+"),
					n.Reason,
					n.Partitions,
					n.Features,
					unix(n.BootTime),
					unix(n.SlurmdStartTime),
					n.Version,
					n.Gres.String(),
					n.GresUsed.String(),
				)
			case "config":
				c, err := parseConfig(recorded(t, d))
				if err != nil {
					return err.Error() + "\n"
				}
				fmt.Fprintf(
					&b,
					"%s TaskPlugin=%q ConstrainDevices=%q relative=%v alloc=%v runinjob=%v\n",
					c.Version(),
					c.Values["TaskPlugin"],
					c.Values["ConstrainDevices"],
					c.RelativeIndex(),
					c.Has("PrologFlags", "Alloc"),
					c.Has("PrologFlags", "RunInJob"),
				)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return b.String()
		})
	})
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

func contains(d *datadriven.TestData, key, value string) bool {
	for _, a := range d.CmdArgs {
		if a.Key == key && slices.Contains(a.Vals, value) {
			return true
		}
	}
	return false
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func sortedKeys(m map[string]GRESList) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// describe returns the fields of a job that are set, as text.
func describe(j Job) string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"%d %q %s reason=%q uid=%d(%s) partition=%s priority=%d restarts=%d limit=%v",
		j.ID,
		j.Name,
		j.State,
		j.Reason,
		j.UID,
		j.User,
		j.Partition,
		j.Priority,
		j.Restarts,
		j.TimeLimit,
	)
	fmt.Fprintf(
		&b,
		"\n  submit=%d eligible=%d start=%d end=%d",
		unix(j.Submit),
		unix(j.Eligible),
		unix(j.Start),
		unix(j.End),
	)
	fmt.Fprintf(
		&b,
		"\n  nodes=%v of %d required=%v tasks=%d gpus-per-node=%d slices-per-node=%v",
		j.Nodes,
		j.NumNodes,
		j.ReqNodes,
		j.Tasks,
		j.GPUsPerNode(),
		j.SlicesPerNode(),
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
		j.Batch,
		j.Requeue,
		j.Exclusive,
		j.Present(),
		j.Holds(),
		ref(j),
	)
	return b.String()
}
