package preempt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// state is slurmctld's state: one node with one A100 full of 1g.5gb slices, seven jobs on them (ids 1 to 7), and
// waiting jobs.
type state struct {
	snapshot plan.Snapshot
	settings plan.Settings
	begins   Settings
}

func newState(t *testing.T) *state { return newStateOf(t, 7) }

// newStateOf is like newState, but with only count jobs. The other units of the GPU are free.
func newStateOf(t *testing.T, count int) *state {
	t.Helper()
	m, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	g := place.GPU{Model: m.Select(mig.Plain)}
	for p := range g.Model.Profiles {
		g.Offerable |= g.Model.OfProfile(p)
	}
	holders := map[offer.Spot]uint32{}
	s := &state{settings: plan.Settings{Policy: place.Reach, Tightest: true}, begins: Settings{Preempt: true}}
	used := slurm.GRESList{{Name: "mig", Type: "1g.5gb", Count: count}, {Name: "gpu", Type: "a100", Count: count}}
	for k := range count {
		i, ok := g.Model.Placement("1g.5gb", k)
		if !ok {
			t.Fatal(k)
		}
		g.Hold(i, float64(now.Unix()+3600))
		holders[offer.Spot{Placement: i}] = uint32(k + 1)
		s.snapshot.Queue.All = append(s.snapshot.Queue.All, slurm.Job{
			ID: uint32(k + 1), UID: 1, State: "RUNNING", Partition: "cancel", Nodes: []string{"n1"}, NumNodes: 1,
			Start: now.Add(-time.Hour), End: now.Add(time.Hour), CPUs: 1, PerNode: slurm.GRESList{{Name: "mig",
				Type: "1g.5gb", Count: 1}},
		})
	}
	extra := plan.WithState("", plan.Text(plan.State{GPUs: []place.GPU{g}}))
	s.snapshot.Nodes = []slurm.Node{{
		Name: "n1", States: []string{"MIXED"}, Partitions: []string{"low", "cancel", "high", "same"}, GresUsed: used,
		Gres:  append(slices.Clone(used), slurm.GRES{Name: "mig", Type: "closed", Count: 21}),
		Extra: plan.WithJobs(extra, []place.GPU{g}, holders), CPUs: 8, CPUsFree: 1,
	}}
	s.snapshot.At, s.snapshot.Queue.Licenses = now, map[string]int{"matlab": 0}
	return s
}

// wait adds a waiting job that needs a 7g.40gb slice.
func (s *state) wait(id uint32, change func(*slurm.Job)) *state {
	j := slurm.Job{
		ID: id, UID: 2, State: "PENDING", Reason: "Resources", Priority: 1, Partition: "high", NumNodes: 1, CPUs: 8,
		Submit: now.Add(-time.Minute), PerNode: slurm.GRESList{{Name: "mig", Type: "7g.40gb", Count: 1}},
	}
	if change != nil {
		change(&j)
	}
	s.snapshot.Queue.All = append(s.snapshot.Queue.All, j)
	return s
}

func (s *state) job(id uint32) *slurm.Job {
	k := slices.IndexFunc(s.snapshot.Queue.All, func(j slurm.Job) bool { return j.ID == id })
	return &s.snapshot.Queue.All[k]
}

// view returns the view of the snapshot that reorder returns, or of the state's snapshot if reorder is nil.
func (s *state) view(reorder func(plan.Snapshot) plan.Snapshot) *plan.View {
	s.snapshot.Queue.Waiting = nil
	for _, j := range s.snapshot.Queue.All {
		if j.State == "PENDING" {
			w := slurm.Waiting{Job: &j, Elements: j.PendingTasks()}
			s.snapshot.Queue.Waiting = append(s.snapshot.Queue.Waiting, w)
		}
	}
	snapshot := s.snapshot
	if reorder != nil {
		snapshot = reorder(snapshot)
	}
	return plan.New(snapshot, s.settings, nil)
}

// next makes the plan and returns the next steps in the form "tag 1 2, stop 3".
func (s *state) next(r Rules) (steps []Step, text string) {
	v := s.view(nil)
	steps = Next(r, s.begins, s.snapshot, v, v.Plan())
	last := Action("")
	for _, step := range steps {
		if step.Do != last {
			text += fmt.Sprintf(", %s", step.Do)
		}
		last = step.Do
		text += fmt.Sprint(" ", step.Job.ID)
	}
	return steps, strings.TrimPrefix(text, ", ")
}

// carryOut applies at most n steps to the state. Stopped jobs are completing, so that their slices are still busy.
func (s *state) carryOut(steps []Step, n int) {
	for _, step := range steps[:min(n, len(steps))] {
		j := s.job(step.Job.ID)
		if step.Do == Stop {
			j.State = "COMPLETING"
			s.snapshot.Nodes[0].CPUsFree += j.CPUs
			continue
		}
		j.AdminComment = step.Comment
	}
}

func tierRules(t *testing.T) Rules {
	return rules(t, map[string]string{"PreemptType": byPartition, "PreemptMode": "REQUEUE"})
}

// TestSequence checks the steps of a preemption if the watcher is killed after each single step: every mark belongs to
// the same preemptor, all seven jobs are stopped once, and nothing else happens.
func TestSequence(t *testing.T) {
	for _, perRound := range []int{100, 3, 1} {
		s := newState(t).wait(9, nil)
		stopped := map[uint32]int{}
		for range 60 {
			steps, _ := s.next(tierRules(t))
			if perRound == 1 && len(steps) > 1 && steps[0].Do == Tag && steps[0].Comment != "" {
				// A preemption begins only if the watcher survives until the preemptor has its tag.
				s.carryOut(steps, 100)
				continue
			}
			if perRound == 3 && len(steps) == 8 && steps[0].Do == Tag {
				s.carryOut(steps, 3)
				again, text := s.next(tierRules(t))
				if text != "tag 1 2 3" || strings.Contains(again[0].Comment, "preempted") {
					t.Fatalf("marks without a preemptor: %s", text)
				}
				s.carryOut(again, 3)
				steps, _ = s.next(tierRules(t))
				s.carryOut(steps, 100)
				continue
			}
			for _, step := range steps[:min(perRound, len(steps))] {
				if step.Do == Stop {
					stopped[step.Job.ID]++
				}
			}
			s.carryOut(steps, perRound)
		}
		for id := range uint32(7) {
			if stopped[id+1] != 1 {
				t.Errorf("%d steps per round: job %d was stopped %d times", perRound, id+1, stopped[id+1])
			}
		}
	}
}

// TestGrace checks that the jobs receive the signals before their grace time, and are stopped after it.
func TestGrace(t *testing.T) {
	s := newState(t).wait(9, nil)
	for id := range uint32(7) {
		s.job(id + 1).Partition = "low" // with GraceTime=60
	}
	for _, want := range []string{"tag 1 2 3 4 5 6 7 9", "warn 1 2 3 4 5 6 7", "", "stop 1 2 3 4 5 6 7", ""} {
		steps, text := s.next(tierRules(t))
		if text != want {
			t.Fatalf("%s: %q, want %q", s.snapshot.At, text, want)
		}
		if s.carryOut(steps, 100); want == "" {
			s.snapshot.At = s.snapshot.At.Add(62 * time.Second)
		}
	}
}

// TestCancelledPreemptor checks that the marked jobs continue if the preemptor is cancelled, held or cannot start.
func TestCancelledPreemptor(t *testing.T) {
	for what, change := range map[string]func(*slurm.Job){
		"cancelled": func(j *slurm.Job) { j.State = "CANCELLED" },
		"held":      func(j *slurm.Job) { j.Priority, j.Reason = 0, "JobHeldUser" },
		"limited":   func(j *slurm.Job) { j.Reason = "QOSMaxJobsPerUserLimit" },
		"dependent": func(j *slurm.Job) { j.Reason, j.Dependency = "Dependency", "afterok:1" },
		"requeued":  func(j *slurm.Job) { j.Restarts = 1 },
	} {
		s := newState(t).wait(9, nil)
		steps, _ := s.next(tierRules(t))
		s.carryOut(steps, 100)
		change(s.job(9))
		if _, text := s.next(tierRules(t)); text != "tag 1 2 3 4 5 6 7" {
			t.Errorf("%s: %q", what, text)
		}
	}
}

// TestNoPreemption checks the waiting jobs for which no job is stopped.
func TestNoPreemption(t *testing.T) {
	for what, change := range map[string]func(*slurm.Job){
		"same tier":      func(j *slurm.Job) { j.Partition = "same" },
		"not considered": func(j *slurm.Job) { j.Reason = "Priority" },
		"held":           func(j *slurm.Job) { j.Priority, j.Reason = 0, "JobHeldUser" },
		"a limit":        func(j *slurm.Job) { j.Reason = "QOSMaxGRESPerUser" },
		"a dependency":   func(j *slurm.Job) { j.Dependency = "afterok:1(unfulfilled)" },
		"licences":       func(j *slurm.Job) { j.Licenses = "matlab:1" },
		"exclusive":      func(j *slurm.Job) { j.Exclusive = true },
		"another node":   func(j *slurm.Job) { j.ReqNodes = []string{"n2"} },
		"too many CPUs":  func(j *slurm.Job) { j.CPUs = 9 },
		"a small slice":  func(j *slurm.Job) { j.PerNode[0].Type = "1g.5gb" }, // slurmctld preempts for it itself
	} {
		if _, text := newState(t).wait(9, change).next(tierRules(t)); text != "" {
			t.Errorf("%s: %q", what, text)
		}
	}
	s := newState(t).wait(9, nil)
	s.job(1).Partition = "high"
	if _, text := s.next(tierRules(t)); text != "" {
		t.Errorf("one of the jobs must not be stopped: %q", text)
	}
}

// TestUnstartedPreemptor checks that no job is stopped for a job that slurmctld did not start although its slices were
// offered for minutes. Here, the slices are then used by other jobs.
func TestUnstartedPreemptor(t *testing.T) {
	var u plan.Unstarted
	for _, offered := range []bool{true, false} {
		s := newState(t)
		if offered {
			s = newStateOf(t, 0)
			n := &s.snapshot.Nodes[0]
			n.Gres[0].Type, n.Gres[0].Count, n.Gres[1].Count, n.CPUsFree = "7g.40gb", 1, 7, 8
		}
		s.wait(9, func(j *slurm.Job) { j.LastSchedEval = now.Add(4 * time.Minute) })
		for _, at := range []time.Duration{0, 5 * time.Minute} {
			s.snapshot.At = now.Add(at)
			v := s.view(u.Reorder)
			u.Record(v, v.Plan(), s.snapshot.At)
			if steps := Next(tierRules(t), s.begins, s.snapshot, v, v.Plan()); len(steps) > 0 {
				t.Errorf("offered %v, after %v: %d steps", offered, at, len(steps))
			}
		}
	}
}

// TestJobWithoutPublishedSlices checks that no preemption begins on a node that has not published the slices of a job
// that has just started.
func TestJobWithoutPublishedSlices(t *testing.T) {
	s := newStateOf(t, 6)
	j := *s.job(6)
	j.ID, j.Start = 7, now
	s.snapshot.Queue.All = append(s.snapshot.Queue.All, j)
	one := func(j *slurm.Job) { j.CPUs = 1 }
	s.wait(8, one)
	if _, text := s.next(tierRules(t)); text != "" {
		t.Errorf("before the publication: %q", text)
	}
	s = newStateOf(t, 7).wait(8, one)
	if _, text := s.next(tierRules(t)); text != "tag 1 2 3 4 5 6 7 8" {
		t.Errorf("after the publication: %q", text)
	}
}

// TestOutranked checks that no job is stopped if slurmctld would give the room to an earlier job that may not preempt.
func TestOutranked(t *testing.T) {
	qos := map[string]string{
		"PreemptType": byQOS, "PreemptMode": "REQUEUE", "AccountingStorageType": slurmdbd,
	}
	for _, c := range []struct {
		what   string
		change func(*slurm.Job) // changes the earlier job
		stops  bool
	}{
		{"the same profile", func(*slurm.Job) {}, false},
		{"another profile", func(j *slurm.Job) { j.PerNode[0].Type = "4g.20gb" }, true},
		{"held", func(j *slurm.Job) { j.Priority, j.Reason = 0, "JobHeldUser" }, true},
		{"another node", func(j *slurm.Job) { j.ReqNodes = []string{"n2"} }, true},
		{"slurmctld considers it later", func(j *slurm.Job) { j.QOS = "scavenger" }, true},
		{"a lower tier", func(j *slurm.Job) { j.Partition = "low" }, true},
	} {
		s := newState(t)
		for id := range uint32(7) {
			s.job(id + 1).QOS = "scavenger"
		}
		s.wait(8, func(j *slurm.Job) { j.QOS, j.Priority = "normal", 2; c.change(j) })
		s.wait(9, func(j *slurm.Job) { j.QOS = "urgent" })
		steps, text := s.next(rules(t, qos))
		if (len(steps) > 0) != c.stops {
			t.Errorf("%s: %q", c.what, text)
		}
	}
	s := newState(t)
	for id := range uint32(7) {
		s.job(id + 1).QOS = "scavenger"
	}
	s.wait(9, func(j *slurm.Job) { j.QOS = "urgent" })
	steps, _ := s.next(rules(t, qos))
	s.carryOut(steps, 100)
	s.wait(8, func(j *slurm.Job) { j.QOS, j.Priority = "normal", 2 })
	slices.Reverse(s.snapshot.Queue.All[7:]) // slurmctld's order
	steps, text := s.next(rules(t, qos))
	if text != "tag 9 1 2 3 4 5 6 7" {
		t.Errorf("an earlier job arrives after the marks: %q", text)
	}
	s.carryOut(steps, 100)
	s.snapshot.Queue.All = slices.DeleteFunc(s.snapshot.Queue.All, func(j slurm.Job) bool { return j.ID == 8 })
	if _, text := s.next(rules(t, qos)); text != "tag 1 2 3 4 5 6 7 9" {
		t.Errorf("after the earlier job has been cancelled: %q", text)
	}
}
