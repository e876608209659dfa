package preempt

import (
	"fmt"
	"math"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// newMovable returns a state in which job 1 holds the first unit of the GPU and job 9 waits for a 4g.20gb slice, whose
// only placement contains that unit. The run of job 1 began ten minutes ago and is expected to end in an hour.
func newMovable(t *testing.T, count int) *state {
	t.Helper()
	s := newStateOf(t, count).wait(9, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs = "4g.20gb", 1 })
	for id := range uint32(count) {
		j := s.job(id + 1)
		j.Batch, j.Requeue, j.Comment = true, true, "caelum:movable"
		j.Start = now.Add(-10 * time.Minute)
	}
	s.snapshot.Nodes[0].CPUsFree = 8 - count
	s.begins = Settings{Moves: true, BeginMove: true, Partitions: []string{"same"}}
	return s
}

// noRules are the rules of a cluster without preemption.
func noRules(t *testing.T) Rules { return rules(t, map[string]string{"PreemptType": "preempt/none"}) }

// TestMovable checks which running jobs are moved. The cases change the running job.
func TestMovable(t *testing.T) {
	const moves = "tag 1 9"
	ago := func(d time.Duration) string { return fmt.Sprint(now.Add(-d).Unix()) }
	for what, c := range map[string]struct {
		change func(*slurm.Job)
		want   string
	}{
		"permitted by the user":   {func(*slurm.Job) {}, moves},
		"permitted by partition":  {func(j *slurm.Job) { j.Comment, j.Partition = "", "same" }, moves},
		"not permitted":           {func(j *slurm.Job) { j.Comment = "" }, ""},
		"a word with a suffix":    {func(j *slurm.Job) { j.Comment = "caelum:movable=1" }, ""},
		"a word with a prefix":    {func(j *slurm.Job) { j.Comment = "not-caelum:movable" }, ""},
		"another case":            {func(j *slurm.Job) { j.Comment = "Caelum:Movable" }, ""},
		"in admin_comment":        {func(j *slurm.Job) { j.Comment, j.AdminComment = "", "caelum:movable" }, ""},
		"not requeueable":         {func(j *slurm.Job) { j.Requeue = false }, ""},
		"not a batch job":         {func(j *slurm.Job) { j.Batch = false }, ""},
		"suspended":               {func(j *slurm.Job) { j.State = "SUSPENDED" }, ""},
		"a component":             {func(j *slurm.Job) { j.HetJob = 1 }, ""},
		"exclusive":               {func(j *slurm.Job) { j.Exclusive = true }, ""},
		"licences":                {func(j *slurm.Job) { j.Licenses = "matlab:1" }, ""},
		"two slices":              {func(j *slurm.Job) { j.PerNode[0].Count = 2 }, ""},
		"two nodes":               {func(j *slurm.Job) { j.Nodes = []string{"n1", "n2"} }, ""},
		"an invalid request":      {func(j *slurm.Job) { j.Problem = "x" }, ""},
		"a larger slice":          {func(j *slurm.Job) { j.PerNode[0].Type = "4g.20gb" }, ""},
		"other features":          {func(j *slurm.Job) { j.Features = slurm.ParseConstraint("fast") }, ""},
		"moved before":            {func(j *slurm.Job) { j.Restarts, j.AdminComment = 1, "caelum:moved=8:0" }, ""},
		"moved long before":       {func(j *slurm.Job) { j.Restarts, j.AdminComment = 2, "caelum:moved=8:0" }, ""},
		"refused for this run":    {func(j *slurm.Job) { j.Restarts, j.AdminComment = 1, "caelum:moved=0:1" }, ""},
		"refused earlier":         {func(j *slurm.Job) { j.Restarts, j.AdminComment = 1, "caelum:moved=0:0" }, moves},
		"an invalid tag":          {func(j *slurm.Job) { j.AdminComment = "caelum:moved=x" }, ""},
		"a near deadline":         {deadline(time.Hour + 120*time.Second), ""},
		"a later deadline":        {deadline(time.Hour + 121*time.Second), moves},
		"too much work lost":      {func(j *slurm.Job) { j.Start = now.Add(121*time.Second - time.Hour - 1) }, ""},
		"as much lost as saved":   {func(j *slurm.Job) { j.Start = now.Add(121*time.Second - time.Hour) }, moves},
		"a checkpoint":            {checkpoint(ago(time.Minute)), moves},
		"an old checkpoint":       {checkpoint(ago(time.Hour)), ""},
		"one before the start":    {checkpoint(ago(90 * time.Hour)), ""},
		"one in the future":       {checkpoint(ago(-99 * time.Hour)), moves},
		"a negative time":         {checkpoint("-1"), ""},
		"a time that is too long": {checkpoint("99999999999999999999"), ""},
		"a time with a fraction":  {checkpoint(ago(0) + ".5"), ""},
		"two checkpoints":         {checkpoint(ago(2*time.Hour) + " caelum:checkpoint=" + ago(0)), ""},
	} {
		s := newMovable(t, 1)
		c.change(s.job(1))
		if _, text := s.next(noRules(t)); text != c.want {
			t.Errorf("%s: %q, want %q", what, text, c.want)
		}
	}
}

// deadline returns a change that gives the job an hour of run time and a deadline after a time from now.
func deadline(after time.Duration) func(*slurm.Job) {
	return func(j *slurm.Job) { j.TimeLimit, j.Deadline = time.Hour, now.Add(after) }
}

// checkpoint returns a change after which the job began two hours ago and reports a checkpoint.
func checkpoint(at string) func(*slurm.Job) {
	return func(j *slurm.Job) {
		j.Start, j.Comment = now.Add(-2*time.Hour), "my job; caelum:movable caelum:checkpoint="+at
	}
}

// TestMoveFor checks for which waiting jobs a job is moved. The cases change the waiting job.
func TestMoveFor(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*slurm.Job)
		want   string
	}{
		"any partition":    {func(j *slurm.Job) { j.Partition = "low" }, "tag 1 9"},
		"two slices":       {func(j *slurm.Job) { j.PerNode[0].Type, j.PerNode[0].Count = "2g.10gb", 3 }, "tag 1 9"},
		"no room for both": {func(j *slurm.Job) { j.PerNode[0].Type = "7g.40gb" }, ""},
		"it can start":     {func(j *slurm.Job) { j.PerNode[0].Type = "2g.10gb" }, ""},
		"not considered":   {func(j *slurm.Job) { j.Reason = "Priority" }, ""},
		"held":             {func(j *slurm.Job) { j.Priority, j.Reason = 0, "JobHeldUser" }, ""},
		"held by Caelum": {func(j *slurm.Job) {
			j.Priority, j.Reason, j.AdminComment = 0, "JobHeldUser", "caelum:held"
		}, ""},
		"a limit":                  {func(j *slurm.Job) { j.Reason = "QOSMaxGRESPerUser" }, ""},
		"a dependency":             {func(j *slurm.Job) { j.Dependency = "afterok:1(unfulfilled)" }, ""},
		"a component":              {func(j *slurm.Job) { j.HetJob = 9 }, ""},
		"exclusive":                {func(j *slurm.Job) { j.Exclusive = true }, ""},
		"another node":             {func(j *slurm.Job) { j.ReqNodes = []string{"n2"} }, ""},
		"too many CPUs":            {func(j *slurm.Job) { j.CPUs = 8 }, ""}, // the moved job needs one of the 8 CPUs
		"all CPUs except one":      {func(j *slurm.Job) { j.CPUs = 7 }, "tag 1 9"},
		"too much memory for both": {func(j *slurm.Job) { j.Memory = 1001 }, ""},
		"enough memory for both":   {func(j *slurm.Job) { j.Memory = 1000 }, "tag 1 9"},
	} {
		s := newMovable(t, 1)
		n := &s.snapshot.Nodes[0]
		n.CPUsFree, n.Memory, n.MemoryFree, s.job(1).Memory = 7, 1500, 1000, 500
		c.change(s.job(9))
		if _, text := s.next(noRules(t)); text != c.want {
			t.Errorf("%s: %q, want %q", what, text, c.want)
		}
	}
}

// situation changes a state with this number of running jobs.
type situation struct {
	count  int
	change func(*state)
	want   string
}

// TestMoveSituation checks how the settings and the other jobs affect a move.
func TestMoveSituation(t *testing.T) {
	small := func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.UID = "3g.20gb", 1, 3 }
	for what, c := range map[string]situation{
		"moves are off":     {1, func(s *state) { s.begins.Moves = false }, ""},
		"not yet":           {1, func(s *state) { s.begins.BeginMove = false }, ""},
		"three jobs":        {3, func(*state) {}, "tag 1 2 3 9"},
		"one must not move": {3, func(s *state) { s.job(2).Comment = "" }, ""},
		"their total is lost": {3, func(s *state) {
			for id := range uint32(3) {
				s.job(id + 1).Start = now.Add(-20 * time.Minute)
			}
		}, ""},
		"four jobs on three units": {4, func(*state) {}, ""},
		"a planned job needs the CPUs": {1, func(s *state) {
			s.wait(8, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.UID = "1g.5gb", 7, 3 })
		}, ""},
		"a planned job needs other CPUs": {1, func(s *state) {
			s.wait(8, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.UID = "1g.5gb", 6, 3 })
		}, "tag 1 9"},
		"a job is planned on the other units": {1, func(s *state) {
			s.wait(8, small)
			all := s.snapshot.Queue.All
			all[1], all[2] = all[2], all[1]
		}, ""},
		"a later job is planned on the other units": {1, func(s *state) { s.wait(8, small) }, ""},
		"an earlier job waits": {1, func(s *state) {
			s.wait(8, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.Reason = "7g.40gb", 1, "Priority" })
			all := s.snapshot.Queue.All
			all[1], all[2] = all[2], all[1]
		}, ""},
		"an unknown end": {1, func(s *state) { s.publishEnd(t, math.Inf(1)) }, ""},
		"a far end":      {1, func(s *state) { s.publishEnd(t, float64(now.AddDate(1, 0, 0).Unix())) }, ""},
	} {
		s := newMovable(t, c.count)
		c.change(s)
		if _, text := s.next(noRules(t)); text != c.want {
			t.Errorf("%s: %q, want %q", what, text, c.want)
		}
	}
}

// TestMoveElsewhere checks how other nodes, other running jobs and the user's other jobs affect a move.
func TestMoveElsewhere(t *testing.T) {
	for what, c := range map[string]situation{
		"it fits on another node": {1, func(s *state) { s.onNodes(t, "IDLE") }, "tag 1 9"},
		"on a node that is powered down": {1, func(s *state) {
			s.onNodes(t, "IDLE", "POWERED_DOWN")
		}, ""},
		"an earlier job lacks memory": {1, func(s *state) {
			n := &s.snapshot.Nodes[0]
			n.Memory, n.MemoryFree = 1500, 700
			s.snapshot.Queue.All = append(s.snapshot.Queue.All,
				slurm.Job{ID: 5, State: "RUNNING", Nodes: []string{"n1"}, NumNodes: 1, Memory: 800})
			s.wait(8, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.Memory = "4g.20gb", 1, 1200 })
			all := s.snapshot.Queue.All
			all[1], all[3] = all[3], all[1]
		}, ""},
		"an unpublished job": {1, func(s *state) {
			j := *s.job(1)
			j.ID = 2
			s.snapshot.Queue.All = append(s.snapshot.Queue.All, j)
		}, ""},
		"the user's other job did not start": {1, func(s *state) {
			s.wait(8, func(j *slurm.Job) {
				j.PerNode, j.AdminComment = nil, fmt.Sprintf("caelum:preempts=0:%d:1", now.Unix()-1000)
			})
		}, ""},
	} {
		s := newMovable(t, c.count)
		c.change(s)
		if _, text := s.next(noRules(t)); text != c.want {
			t.Errorf("%s: %q, want %q", what, text, c.want)
		}
	}
}

// onNodes adds a node with an empty GPU in these states, on which only job 1 can run. Job 9 then waits for a whole GPU.
func (s *state) onNodes(t *testing.T, states ...string) {
	t.Helper()
	n := s.snapshot.Nodes[0]
	g := place.GPU{Model: fullModel(t)}
	for p := range g.Model.Profiles {
		g.Offerable |= g.Model.OfProfile(p)
	}
	n.Name, n.States, n.Partitions, n.CPUsFree, n.GresUsed = "n2", states, []string{"same"}, 8, nil
	n.Extra = plan.WithState("", plan.Text(plan.State{GPUs: []place.GPU{g}}))
	s.snapshot.Nodes = append(s.snapshot.Nodes, n)
	s.job(1).Partition, s.job(9).PerNode[0].Type = "same", "7g.40gb"
}

func fullModel(t *testing.T) *mig.Model {
	t.Helper()
	m, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	return m.Select(mig.Plain)
}

// publish makes the node publish the offers of the plan.
func (s *state) publish() {
	v := s.view(nil)
	n := &s.snapshot.Nodes[0]
	counts := v.Counts(v.Plan(), 0)
	for _, g := range n.GresUsed.Named("mig") {
		counts[g.Type] += g.Count
	}
	n.Gres = n.GresUsed.Named("gpu")
	for profile, count := range counts {
		n.Gres = append(n.Gres, slurm.GRES{Name: "mig", Type: profile, Count: count})
	}
}

// publishEnd publishes another end of job 1, whose record has no end.
func (s *state) publishEnd(t *testing.T, end float64) {
	t.Helper()
	g := place.GPU{Model: fullModel(t)}
	for p := range g.Model.Profiles {
		g.Offerable |= g.Model.OfProfile(p)
	}
	i, _ := g.Model.Placement("1g.5gb", 0)
	g.Hold(i, end)
	n := &s.snapshot.Nodes[0]
	n.Extra = plan.WithState(n.Extra, plan.Text(plan.State{GPUs: []place.GPU{g}}))
	s.job(1).End = time.Time{}
}

// TestPreemptionPrecedesMove checks that no job is moved if Slurm's rules allow a preemption, whether the watcher or
// slurmctld carries it out.
func TestPreemptionPrecedesMove(t *testing.T) {
	for _, c := range []struct {
		what, partition string
		begins          Settings
		free            int // free CPUs beside the running job's
		want            string
	}{
		{"preemption", "high", Settings{Preempt: true, Moves: true, BeginMove: true}, 7, "tag 1 9"},
		{"no preemption by the watcher", "high", Settings{Moves: true, BeginMove: true}, 7, "tag 1 9"},
		{"not allowed by the rules", "cancel", Settings{Preempt: true, Moves: true, BeginMove: true}, 7, "tag 1 9"},
	} {
		s := newMovable(t, 1)
		s.begins, s.job(9).Partition, s.snapshot.Nodes[0].CPUsFree = c.begins, c.partition, c.free
		steps, text := s.next(tierRules(t))
		if text != c.want || steps[0].Move != (c.what != "preemption") {
			t.Errorf("%s: %q, move %v", c.what, text, steps[0].Move)
		}
	}
	for partition, want := range map[string]string{"low": "", "safe": "tag 1 9"} {
		s := newMovable(t, 1)
		s.onNodes(t, "IDLE") // with a slice of the requested profile that slurmctld preempts, unless it must not
		s.job(1).Partition, s.job(9).PerNode[0].Type, s.job(9).Partition = "high", "4g.20gb", "high"
		n := &s.snapshot.Nodes[1]
		g := place.GPU{Model: fullModel(t)}
		for p := range g.Model.Profiles {
			g.Offerable |= g.Model.OfProfile(p)
		}
		i, _ := g.Model.Placement("4g.20gb", 0)
		g.Hold(i, float64(now.Unix()+3600))
		n.Extra = plan.WithState("", plan.Text(plan.State{GPUs: []place.GPU{g}}))
		n.Extra = plan.WithJobs(n.Extra, []place.GPU{g}, map[offer.Spot]uint32{{Placement: i}: 2})
		n.Partitions, n.CPUsFree = []string{"high"}, 7
		j := *s.job(1)
		j.ID, j.Partition, j.Nodes, j.Comment = 2, partition, []string{"n2"}, ""
		j.PerNode = slurm.GRESList{{Name: "mig", Type: "4g.20gb", Count: 1}}
		s.snapshot.Queue.All = append(s.snapshot.Queue.All, j)
		if _, text := s.next(tierRules(t)); text != want {
			t.Errorf("slurmctld may preempt a job in %s: %q, want %q", partition, text, want)
		}
	}
}

// TestMoveSequence checks the steps of a move if the watcher is killed after each step, and that a move ends if its
// conditions no longer hold.
func TestMoveSequence(t *testing.T) {
	for _, perRound := range []int{100, 1} {
		s := newMovable(t, 1)
		var all []string
		for range 10 {
			s.publish()
			steps, text := s.next(noRules(t))
			for _, step := range steps[:min(perRound, len(steps))] {
				if step.Do == Stop && (!step.Move || step.Mode != Requeue) {
					t.Errorf("%+v", step)
				}
			}
			if text == "tag 1 9" && perRound == 1 { // a move begins only if the watcher writes both tags
				s.carryOut(steps, 1)
				again, text := s.next(noRules(t))
				if text != "tag 1" || s.begins.BeginMove && again[0].Comment != "" {
					t.Fatalf("a mark without a preemptor: %q %+v", text, again)
				}
				s.carryOut(again, 1)
				steps, _ = s.next(noRules(t))
				s.carryOut(steps, 100)
			} else {
				s.carryOut(steps, perRound)
			}
			if text != "" {
				all = append(all, text)
			}
		}
		if want := "[tag 1 9 stop 1]"; fmt.Sprint(all) != want || s.job(1).AdminComment != "caelum:moved=9:0" {
			t.Errorf("%d steps per round: %v, %q", perRound, all, s.job(1).AdminComment)
		}
	}
}

// TestMoveGivenUp checks the tags after a move that has been given up before the requeue. A job that must not be moved
// any more is not marked again in this run. The waiting job must lose its tag, because its user would otherwise not be
// allowed to preempt or to move other jobs.
func TestMoveGivenUp(t *testing.T) {
	const refused = "caelum:moved=0:0"
	for what, k := range map[string]struct {
		moved  string // the tag of the marked job
		change func(*state)
	}{
		"the user withdraws the permission": {refused, func(s *state) { s.job(1).Comment = "" }},
		"the job must not be requeued":      {refused, func(s *state) { s.job(1).Requeue = false }},
		"suspended":                         {refused, func(s *state) { s.job(1).State = "SUSPENDED" }},
		"the other units are used": {"", func(s *state) {
			s.wait(8, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.UID = "3g.20gb", 1, 3 })
		}},
		"the waiting job is cancelled": {"", func(s *state) {
			s.job(9).State, s.job(9).AdminComment = "CANCELLED", ""
		}},
		"moves are turned off": {"", func(s *state) {
			s.begins.Moves, s.job(9).AdminComment = false, ""
		}},
	} {
		s := newMovable(t, 1)
		steps, _ := s.next(noRules(t))
		s.carryOut(steps, 100)
		s.publish()
		if _, text := s.next(noRules(t)); text != "stop 1" {
			t.Fatal(text)
		}
		k.change(s)
		steps, text := s.next(noRules(t))
		s.carryOut(steps, 100)
		if s.job(1).AdminComment != k.moved || s.job(9).AdminComment != "" {
			t.Errorf("%s: %q, tags %q and %q", what, text, s.job(1).AdminComment, s.job(9).AdminComment)
		}
	}
}

// TestRefuse checks that a refused move ends, and that the job is not chosen again in this run, unlike in the next one.
func TestRefuse(t *testing.T) {
	s := newMovable(t, 1)
	steps, _ := s.next(noRules(t))
	s.carryOut(steps, 100)
	s.publish()
	steps, text := s.next(noRules(t))
	if text != "stop 1" {
		t.Fatal(text)
	}
	s.carryOut(Refuse(s.snapshot, steps), 100)
	if s.job(1).AdminComment != "caelum:moved=0:0" || s.job(9).AdminComment != "" {
		t.Errorf("tags %q and %q", s.job(1).AdminComment, s.job(9).AdminComment)
	}
	if _, text := s.next(noRules(t)); text != "" {
		t.Errorf("in the same run: %q", text)
	}
	s.job(1).Restarts++
	if _, text := s.next(noRules(t)); text != "tag 1 9" {
		t.Errorf("in the next run: %q", text)
	}
}
