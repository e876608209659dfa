package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// line parses "name key=value key=value ...".
func line(text string) (name string, set map[string]string) {
	f := strings.Fields(text)
	set = map[string]string{}
	for _, word := range f[1:] {
		key, value, _ := strings.Cut(word, "=")
		set[key] = value
	}
	return f[0], set
}

// jobOf parses a line with a job's id and properties.
func jobOf(t *testing.T, text string) slurm.Job {
	id, set := line(text)
	number := func(key string) int {
		n, err := strconv.Atoi(set[key])
		if set[key] != "" && err != nil {
			t.Fatal(err)
		}
		return n
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	j := slurm.Job{
		ID:        uint32(n),
		UID:       uint32(number("user")),
		State:     "PENDING",
		Reason:    "Priority",
		Priority:  uint64(1000 - n),
		Partition: "gpu",
		NumNodes:  1,
		TimeLimit: time.Duration(number("limit")) * time.Second,
		CPUs:      number("cpus"),
		Memory:    number("mem"),
		HetJob:    uint32(number("het")),
		Licenses:  set["licenses"],
		Eligible:  time.Unix(1e9-100, 0),
	}
	if p := set["wants"]; p != "" {
		profile, count, many := strings.Cut(p, ":")
		g := slurm.GRES{Name: "mig", Type: profile, Count: 1}
		if many {
			g.Count, _ = strconv.Atoi(count)
		}
		j.PerNode = []slurm.GRES{g}
	}
	for part := range strings.SplitSeq(set["set"], ",") {
		if id, err := strconv.ParseUint(part, 10, 32); err == nil {
			j.HetJobs = append(j.HetJobs, uint32(id))
		}
	}
	if r, ok := set["reason"]; ok {
		j.Reason = r
	}
	if j.Reason == "JobHeldUser" {
		j.Priority = 0
	}
	if _, ok := set["tagged"]; ok {
		j.AdminComment = tags.Held
	}
	return j
}

// TestQueue runs the files testdata/queue/*.txt. Times are in seconds after the snapshot. The commands are:
//
//	nodes        one per line: name, number of GPUs, busy placements with their ends, free CPUs and memory (MiB)
//	licenses     one per line: name, number of free licences
//	jobs         one per line; running jobs have a node
//	plan         shows where each waiting job is planned, the reservations, and the components that must be held.
//	             With minutes=N: shows the changes of the plan when it is made every 30 s for N minutes
//	explain      shows the verdict and text of Explain for a job
func TestQueue(t *testing.T) {
	datadriven.Walk(t, "testdata/queue", func(t *testing.T, path string) {
		var snapshot Snapshot
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "nodes":
				snapshot = Snapshot{At: time.Unix(1e9, 0)}
				for text := range strings.Lines(d.Input) {
					snapshot.Nodes = append(snapshot.Nodes, nodeOf(t, text))
				}
				return ""
			case "licenses":
				snapshot.Queue.Licenses = map[string]int{}
				for text := range strings.Lines(d.Input) {
					name, free, _ := strings.Cut(strings.TrimSpace(text), " ")
					snapshot.Queue.Licenses[name], _ = strconv.Atoi(free)
				}
				return ""
			case "jobs":
				readJobs(t, &snapshot, d.Input)
				return ""
			case "plan":
				minutes := 0
				d.MaybeScanArgs(t, "minutes", &minutes)
				return plannedFor(snapshot, time.Duration(minutes)*time.Minute)
			case "explain":
				id, _ := strconv.ParseUint(d.CmdArgs[0].Key, 10, 32)
				e, err := Explain(snapshot, withReach, uint32(id))
				if err != nil {
					return err.Error()
				}
				return fmt.Sprintf("%s: %s\n", e.Verdict, e.Text)
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// nodeOf parses a node.
func nodeOf(t *testing.T, text string) slurm.Node {
	name, set := line(text)
	gpus, _ := strconv.Atoi(set["gpus"])
	n := node(t, name)
	state := State{Since: time.Unix(1e9-60, 0)}
	for range gpus {
		state.GPUs = append(state.GPUs, a100(t))
	}
	for spec := range strings.SplitSeq(set["busy"], ",") {
		at, end, ok := strings.Cut(spec, "+")
		gpu, label, _ := strings.Cut(at, "/")
		if !ok {
			continue
		}
		k, _ := strconv.Atoi(gpu)
		profile, start, _ := strings.Cut(label, "@")
		first, _ := strconv.Atoi(start)
		p, found := state.GPUs[k].Model.Placement(profile, first)
		until, err := strconv.ParseFloat(end, 64)
		if err != nil || !found {
			t.Fatal(spec)
		}
		state.GPUs[k].Hold(p, 1e9+until)
	}
	n.Extra = WithState("", Text(state))
	n.CPUs, n.CPUsFree, n.Memory, n.MemoryFree = 64, 64, 256_000, 256_000
	for key, to := range map[string]*int{"cpus": &n.CPUsFree, "mem": &n.MemoryFree} {
		if set[key] != "" {
			*to, _ = strconv.Atoi(set[key])
		}
	}
	return n
}

// readJobs replaces the jobs of a snapshot.
func readJobs(t *testing.T, snapshot *Snapshot, input string) {
	snapshot.Queue.All, snapshot.Queue.Waiting = nil, nil
	for text := range strings.Lines(input) {
		j := jobOf(t, text)
		if _, set := line(text); set["on"] != "" {
			j.State, j.Nodes, j.Start = "RUNNING", []string{set["on"]}, snapshot.At.Add(-time.Minute)
			if j.TimeLimit > 0 {
				j.TimeLimit += time.Minute // the job has been running for a minute
				j.End = j.Start.Add(j.TimeLimit)
			}
		} else if set["state"] != "" {
			j.State = set["state"]
		} else {
			snapshot.Queue.Waiting = append(snapshot.Queue.Waiting, slurm.Waiting{Job: &j, Elements: 1})
		}
		snapshot.Queue.All = append(snapshot.Queue.All, j)
	}
}

// plannedFor formats the plan. It makes a new one every 30 s for the given time, and appends the changes.
func plannedFor(snapshot Snapshot, lasting time.Duration) string {
	var u Unstarted
	out, last := "", ""
	for after := time.Duration(0); after <= lasting; after += 30 * time.Second {
		if now := planned(&u, snapshot, after); now != last {
			if lasting > 0 {
				out += fmt.Sprintf("after %v:\n", after)
			}
			out += now
			last = now
		}
	}
	return out
}

// planned makes a plan after the snapshot has been unchanged for the given time, during which the running jobs'
// remaining time does not change either, and formats it.
func planned(u *Unstarted, snapshot Snapshot, after time.Duration) string {
	var out strings.Builder
	at := snapshot.At.Add(after)
	v := New(
		Snapshot{Nodes: snapshot.Nodes, Queue: snapshot.Queue, At: snapshot.At, paused: u.paused(at)},
		withReach,
		nil,
	)
	p := v.Plan()
	u.charge(v, p, at)
	for k, j := range v.Jobs {
		on := "waits"
		if p.Spots[k] != nil {
			on = "on " + strings.Join(v.On(p.Spots[k]), " ")
		}
		fmt.Fprintf(&out, "%d: %s\n", j.ID, on)
	}
	if r := p.Kept; r != nil {
		fmt.Fprintf(&out, "kept for %d, lent for %g s\n", v.Jobs[r.Job].ID, r.At-v.Now)
	}
	if r := p.Reserved; r != nil && !math.IsInf(r.At, 1) {
		fmt.Fprintf(
			&out,
			"reserved for %d in %g s on %s\n",
			v.Jobs[r.Job].ID,
			r.At-v.Now,
			strings.Join(v.On(r.Spots), " "),
		)
	}
	for _, w := range Stray(snapshot) {
		fmt.Fprintf(&out, "%d is to be held\n", w.ID)
	}
	return out.String()
}
